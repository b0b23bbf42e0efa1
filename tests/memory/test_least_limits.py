"""The limits that refusals name: they can be given as they are printed, and nothing much lower would do."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import lotan
from lotan.errors import ConfigurationError
from tests.links.graphs import columns

LOW = "200m"  # below what an empty process takes
LINKS = lotan.LinkPrediction("distmult", negatives=50)
BATCHES, OF_LINKS = lotan.MiniBatch(64, (5, 5)), lotan.MiniBatch(64, ())


def stored(order: str, fanouts: tuple[int, ...] = (5, 5)) -> lotan.MiniBatch:
    return lotan.MiniBatch(64, fanouts, order=order)


class Rows(torch.nn.Module):
    """Learned rows, and a layer over them."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = lotan.nn.LearnedFeatures(24)
        self.layer = lotan.nn.GraphSAGE(24, 8, 2, 4)

    def forward(self, x: torch.Tensor, graph: Any) -> torch.Tensor:
        return self.layer(self.rows(x), graph)


Model = Callable[[], torch.nn.Module]
GCN, SAGE = partial(lotan.nn.GCN, 32, 64, 3, 4), partial(lotan.nn.GraphSAGE, 32, 8, 2, 4)
TABLE = partial(lotan.nn.LearnedRows, 64)
ON_SPARK = {"workers": 2, "master": "local[2]"}

VERTICES: dict[str, tuple[Model, dict[str, Any]]] = {
    "local": (GCN, {"engine": "local"}),
    "local, attention": (partial(lotan.nn.GAT, 32, 16, 2, 4, heads=4), {"engine": "local"}),
    "auto": (GCN, {}),
    "blocks": (GCN, {"engine": "blocks"} | ON_SPARK),
    "blocks, few partitions": (GCN, {"engine": "blocks", "partitions": 1, "worker_memory": "1g"} | ON_SPARK),
    "rows": (GCN, {"engine": "rows"} | ON_SPARK),
    "mini-batches": (SAGE, {"regime": BATCHES}),
    "fixed mini-batches": (SAGE, {"regime": stored("fixed until the elbow")}),
    "mini-batches on blocks": (SAGE, {"engine": "blocks", "regime": BATCHES} | ON_SPARK),
    "each once": (SAGE, {"regime": stored("each_once")}),
    "each once, sizes": (SAGE, {"regime": stored("each_once(partitions=8, buffer=4)")}),
    "cached nodes": (SAGE, {"regime": stored("cached_nodes")}),
    "rows on a disk": (Rows, {"regime": stored("each_once"), "optimizer": lotan.Adagrad(lr=0.1)}),
}
OTHERS: dict[str, tuple[Model, dict[str, Any]]] = {
    "full batch": (TABLE, {}),
    "mini-batches": (TABLE, {"regime": OF_LINKS}),
    "all negatives": (TABLE, {"regime": OF_LINKS, "task": lotan.LinkPrediction("dot", negatives="all")}),
    "comet": (TABLE, {"regime": stored("comet", ())}),
    "beta, sizes": (TABLE, {"regime": stored("beta(partitions=8, buffer=3)", ())}),
    "comet, encoder": (Rows, {"regime": stored("comet")}),
}


@pytest.fixture(scope="module")
def vertices() -> lotan.Graph:
    return lotan.datasets.generate(5_000, 15_000, width=32, classes=4)


@pytest.fixture(scope="module")
def links() -> lotan.Graph:
    return lotan.Graph.from_arrays(**columns(4, vertices=20_000, edges=30_000))


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("hosts.spark_session", "engines.blocks.obstacles"):  # a session's heap would stay as it is
        monkeypatch.setattr(f"lotan.{place}.active_session", lambda: None)


def refusal(trainer: lotan.Trainer) -> str:
    with pytest.raises(ConfigurationError, match="memory_limit is") as refused:
        trainer.explain()
    return str(refused.value)


def named(said: str) -> int:
    """The limit that a refusal says to give, in mebibytes."""
    return int(re.findall(r": give (\d+)m", said)[0])


def check_named(under: Callable[[str], lotan.Trainer]) -> None:
    least = named(refusal(under(LOW)))
    assert under(f"{least}m").explain()
    assert named(refusal(under(f"{int(0.95 * least)}m"))) <= least


@pytest.mark.parametrize("case", VERTICES)
def test_the_limit_that_a_refusal_names_is_accepted(case: str, vertices: lotan.Graph) -> None:
    model, settings = VERTICES[case]
    check_named(lambda limit: lotan.Trainer(model(), vertices, memory_limit=limit, progress=False, **settings))


@pytest.mark.parametrize("case", OTHERS)
def test_so_it_is_for_links(case: str, links: lotan.Graph) -> None:
    model, settings = OTHERS[case]
    given = {"task": LINKS, "optimizer": lotan.Adagrad(lr=0.1)} | settings
    check_named(lambda limit: lotan.Trainer(model(), links, memory_limit=limit, progress=False, **given))


@pytest.mark.parametrize("case", ["local", "auto", "mini-batches", "each once", "each once, sizes"])
def test_so_it_is_for_files(case: str, vertices: lotan.Graph, tmp_path: Path) -> None:
    vertices.save(tmp_path / "graph")
    model, settings = VERTICES[case]

    def under(limit: str) -> lotan.Trainer:
        graph = lotan.Graph.read(tmp_path / "graph")
        return lotan.Trainer(model(), graph, memory_limit=limit, progress=False, **settings)

    check_named(under)


def test_what_is_advised_is_accepted(vertices: lotan.Graph) -> None:
    given: dict[str, Any] = {
        "engine": "blocks",
        "partitions": 1,
        "worker_memory": "1g",
        "workers": 8,
        "master": "local[2]",
    }

    def under(**settings: Any) -> lotan.Trainer:
        return lotan.Trainer(GCN(), vertices, progress=False, **{**given, **settings})

    said = refusal(under(memory_limit="4g"))
    assert "(estimated, of all processes together)" in said  # and no word of engines that were not asked for
    (low,) = re.findall(r"leave worker_memory out \((\d+m) would do then\)", said)
    assert under(worker_memory=None, memory_limit=low).explain()
    assert f"leave worker_memory out and give {low}," in refusal(under(memory_limit="2g"))
    (workers, needed) = re.findall(r"give workers=(\d+) \((\d+)m would do then\)", said)[0]
    assert under(workers=int(workers), memory_limit="4g").explain()
    assert under(workers=int(workers), memory_limit=f"{needed}m").explain()
    (local,) = re.findall(r"give engine='local' \((\d+)m would do then\)$", said)
    assert under(engine="local", memory_limit=f"{local}m").explain()


@pytest.mark.parametrize("order", ["beta(partitions=4, buffer=4)", "shuffled"])
def test_advice_on_batches_and_negatives_is_accepted(order: str, links: lotan.Graph) -> None:
    fits = {"batch_size": 4096, "negatives": 4096, "order": order}

    def under(limit: str, **changes: Any) -> lotan.Trainer:
        asked = fits | changes
        task = lotan.LinkPrediction("distmult", negatives=asked["negatives"])
        regime = lotan.MiniBatch(asked["batch_size"], (), order=asked["order"])
        optimizer = lotan.Adagrad(lr=0.1)
        return lotan.Trainer(
            TABLE(), links, task=task, regime=regime, optimizer=optimizer, memory_limit=limit, progress=False
        )

    limit = f"{named(refusal(under(LOW))) - 1}m"
    said = refusal(under(limit))
    advised = re.findall(r"give (batch_size|negatives|order)=(\w+|'\w+')[^(]*\((\d+)m would do then\)", said)
    assert advised
    for name, value, needed in advised:
        change = {name: value.strip("'") if name == "order" else int(value)}
        assert under(limit, **change).explain()
        assert under(f"{needed}m", **change).explain()
