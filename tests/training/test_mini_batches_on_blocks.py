"""Mini-batches on blocks: the numbers of the local engine, and the same bits whatever goes wrong in an epoch."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pytest
import torch
import torch_geometric.nn as pyg
from pyspark.sql import SparkSession

import lotan
from lotan.batches import on_spark
from lotan.batches.spark_frames import EpochFrames
from lotan.batches.spark_tasks import SendTask
from lotan.errors import EngineError, PassLostError
from lotan.hosts.jar import JAR
from lotan.results.run import Run
from lotan.training import passes
from lotan.worker.fork_server import WORKER_TITLE
from tests.training.test_batch_norm import WIDTH as WIDTH_OF_BOTH
from tests.training.test_both_directions import Directed, TurnedRound, made
from tests.training.test_mini_batches import figures

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar"),
]

VERTICES, WIDTH, CLASSES = 60, 6, 3
WIDE = 40  # features that are worth a question before they are sent to a worker
REGIME = lotan.MiniBatch(batch_size=7, fanouts=(3, 2), seed=4)


def tables(
    texts: bool = True, weighted: bool = True, several: bool = False, width: int = WIDTH
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Vertices in no order, with some that have no split or no edge, parallel edges and self-loops."""
    random = np.random.default_rng(0)
    names = np.array([f"v{number}" for number in range(VERTICES)]) if texts else np.arange(VERTICES) * 5 - 40
    label: Any = random.integers(0, CLASSES, VERTICES)
    if several:
        label = list(random.integers(0, 2, (VERTICES, CLASSES)).astype(np.float32))
    vertices = pd.DataFrame({
        "id": names,
        "features": list(random.normal(size=(VERTICES, width)).astype(np.float32)),
        "label": label,
        "split": random.choice(["train", "val", "test", None], VERTICES, p=[0.6, 0.1, 0.2, 0.1]),
    })  # fmt: skip
    src, dst = random.integers(0, VERTICES - 3, (2, 400))
    dst[:60] = 1  # a hub
    src[60:70], dst[60:70] = 2, 3  # parallel
    edges = pd.DataFrame({"src": names[src], "dst": names[dst], "w": random.random(400).astype(np.float32) + 0.5})
    return vertices.sample(frac=1, random_state=0), edges if weighted else edges.drop(columns="w")


def in_spark(spark: SparkSession, given: tuple[pd.DataFrame, pd.DataFrame], **names: Any) -> lotan.Graph:
    return lotan.Graph(*(spark.createDataFrame(table) for table in given), **names)


def fit(
    graph: lotan.Graph,
    kind: str = "GCN",
    engine: str = "blocks",
    regime: Any = REGIME,
    width: int = WIDTH,
    **options: Any,
) -> Run:
    torch.manual_seed(0)
    model = getattr(lotan.nn, kind)(width, 8, 2, CLASSES, dropout=0.5)
    settings = {"optimizer": lotan.Adam(lr=0.01), "epochs": 2, "eval_every": 2, "progress": False, "regime": regime}
    settings |= {"workers": 2, "partitions": 3} if engine == "blocks" else {}
    return lotan.Trainer(model, graph, engine=engine, **settings | options).fit()


def assert_equal_local(run: Run, local: Run, samples: bool = True) -> None:
    assert run.report["engine"] == "blocks"
    assert [entry["loss"] for entry in run.history] == pytest.approx([one["loss"] for one in local.history], rel=1e-5)
    assert run.metrics["test"]["loss"] == pytest.approx(local.metrics["test"]["loss"], rel=1e-5)
    for name, weights in run.model.weights.items():
        torch.testing.assert_close(weights, local.model.weights[name], rtol=1e-5, atol=1e-6, msg=name)
    if not samples:
        return
    for size in ("batches", "vertices", "edges"):  # the same samples
        assert run.report["mini_batches"][size] == local.report["mini_batches"][size]


@pytest.fixture(scope="module", name="straight")
def undisturbed(spark: SparkSession) -> tuple[lotan.Graph, Run]:
    """A graph of wide features, and a run whose workers keep none of them."""
    graph = in_spark(spark, tables(width=WIDE), weight="w")
    return graph, fit(graph, width=WIDE, worker_rows=0)


def test_batches_on_blocks_equal_those_in_one_process(straight: tuple[lotan.Graph, Run]) -> None:
    """Six steps an epoch, the last on fewer targets; texts as ids, weights, dropout."""
    run = straight[1]
    local = fit(lotan.Graph(*tables(width=WIDE), weight="w"), engine="local", width=WIDE)
    assert local.report["mini_batches"]["batches"] > 8
    assert_equal_local(run, local)
    assert all(run.report["bytes"][key] > 0 for key in ("messenger_sent", "messenger_received", "shuffle_written"))


@pytest.mark.nightly  # by day on local
def test_batches_that_are_fixed_are_drawn_once_until_the_elbow(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second epoch has the batches of the first, and the third has its own."""
    monkeypatch.setattr(passes, "elbow", lambda history, monitor: 2 if len(history) >= 2 else None)
    drawn: list[int] = []
    before = EpochFrames._all_rows
    monkeypatch.setattr(EpochFrames, "_all_rows", lambda self: drawn.append(self.of.epoch) or before(self))
    given, regime = tables(), lotan.MiniBatch(7, (3, 2), seed=4, order="fixed until the elbow")
    run = fit(in_spark(spark, given, weight="w"), regime=regime, epochs=3, eval_every=1)
    assert drawn == [1, 3]
    local = fit(lotan.Graph(*given, weight="w"), engine="local", regime=regime, epochs=3, eval_every=1)
    assert_equal_local(run, local, samples=False)  # local has prepared some once more, for draws that were not wanted


@pytest.mark.nightly  # by day on local
def test_first_sums_are_computed_once_in_spark_and_again_if_they_are_lost(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches then need a hop less. In the second epoch these sums, and all that is drawn from them, are lost once."""
    turn, lost = on_spark.SparkBatches._turn, []

    def disturbed(self: on_spark.SparkBatches, batch: Any, a_pass: Any) -> Any:
        if a_pass.epoch == 2 and batch.number == 1 and not lost:
            lost.extend(self._engine._hoisted)
            self._engine._release_hoisted()
            self._graph.close()
            raise PassLostError("an executor has gone")
        return turn(self, batch, a_pass)

    monkeypatch.setattr(on_spark.SparkBatches, "_turn", disturbed)
    given, regime = tables(texts=False), lotan.MiniBatch(7, ("all", "all"), seed=4)
    run = fit(in_spark(spark, given, weight="w"), regime=regime)
    assert len(lost) == 1
    local = fit(lotan.Graph(*given, weight="w"), engine="local", regime=regime)
    assert local.report["mini_batches"]["edges"] < local.report["mini_batches"]["batches"] * 7 * 400 / VERTICES * 2
    assert_equal_local(run, local)


class Normalised(torch.nn.Module):
    """BatchNorm of the features, and between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(WIDTH, momentum=None)
        self.rest = pyg.GraphSAGE(WIDTH, 8, 2, CLASSES, norm="batch_norm")

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.rest(self.norm(x), edge_index)


@pytest.mark.nightly  # by day on local
def test_statistics_of_a_batch_are_those_of_its_rows(spark: SparkSession) -> None:
    """Running statistics are compared as weights are."""
    given, regime = tables(weighted=False), lotan.MiniBatch(7, (3, "all"), seed=4)
    runs = []
    for graph, engine in ((in_spark(spark, given), "blocks"), (lotan.Graph(*given), "local")):
        torch.manual_seed(0)
        settings = {"workers": 2, "partitions": 3} if engine == "blocks" else {}
        trainer = lotan.Trainer(
            Normalised(), graph, engine=engine, regime=regime, epochs=2, eval_every=2, progress=False, **settings
        )
        runs.append(trainer.fit())
    assert_equal_local(*runs)
    batches = runs[1].report["mini_batches"]["batches"]
    assert int(runs[0].model.weights["norm.num_batches_tracked"]) == batches > 8


CASES: list[tuple[str, dict[str, Any], tuple[Any, ...]]] = [
    ("GraphSAGE", {"weighted": False}, (3, 2)),
    ("GraphSAGE", {"weighted": False, "several": True}, ("all", "all")),  # its first sums are computed once
    ("GAT", {"weighted": False}, (2, "all")),
    ("GCN", {"weighted": True}, ("all", "all")),
    ("GIN", {"weighted": False}, (1, 1)),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "given", "fanouts"), CASES)
def test_models_and_fanouts_equal_local(
    spark: SparkSession, kind: str, given: dict[str, Any], fanouts: tuple[Any, ...]
) -> None:
    both, regime = tables(texts=False, **given), lotan.MiniBatch(7, fanouts)
    names = {"weight": "w"} if given["weighted"] else {}
    on_blocks = fit(in_spark(spark, both, **names), kind, regime=regime)
    assert_equal_local(on_blocks, fit(lotan.Graph(*both, **names), kind, engine="local", regime=regime))


@pytest.mark.nightly  # by day on local
@pytest.mark.parametrize("kind", [Directed, TurnedRound])
def test_out_edges_are_drawn_too_for_edges_turned_round(spark: SparkSession, kind: Any) -> None:
    both, regime = tables(weighted=False, width=WIDTH_OF_BOTH), lotan.MiniBatch(16, (2, 3))
    runs = []
    for graph, engine in ((in_spark(spark, both), "blocks"), (lotan.Graph(*both), "local")):
        settings = {"workers": 2, "partitions": 3} if engine == "blocks" else {}
        options = {"regime": regime, "epochs": 2, "eval_every": 2, "progress": False, **settings}
        runs.append(lotan.Trainer(made(kind), graph, engine=engine, **options).fit())
    assert_equal_local(*runs)


@dataclass(frozen=True)
class FaultyTask(SendTask):
    """A task to which something happens when it sends a batch for the first time. It runs in Spark's Python workers."""

    marks: str = ""  # a folder that remembers what has happened
    kind: str = ""  # "raise", "twice", "worker" or "router"
    batch: int = 0  # the pass in which it happens
    parent: int = 0  # the process whose worker or Router is killed
    spared: tuple[int, ...] = ()  # its other workers and Routers, which are there for other tests

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [rows for rows in batches if rows.num_rows]
        number = self.job.pass_number + held[0].column("batch")[0].as_py()
        if number != self.batch or not self._first():
            yield from super().__call__(held)
            return
        if self.kind in ("worker", "router"):
            found = workers_of(self.parent) if self.kind == "worker" else routers_of(self.parent)
            os.kill(next(one for one in found if one not in self.spared), signal.SIGKILL)
        yield from super().__call__(held)
        if self.kind == "raise":  # after the commit
            raise RuntimeError("this disk is full")
        if self.kind == "twice":
            list(super().__call__(held))

    def _first(self) -> bool:
        try:
            os.close(os.open(Path(self.marks) / self.kind, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


KINDS = ("raise", "twice", "worker", "router")


def workers_of(process: int) -> list[int]:
    children = psutil.Process(process).children(recursive=True)
    return sorted(one.pid for one in children if one.name() == WORKER_TITLE)


def routers_of(process: int) -> list[int]:
    found = []
    for one in psutil.Process(process).children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            found += [one.pid] * ("messenger.router_process" in one.cmdline())
    return found


def victims() -> dict[str, Any]:
    """Return what a `FaultyTask` needs to know of processes: the workers and Routers that start later may be killed."""
    own = os.getpid()
    return {"parent": own, "spared": (*workers_of(own), *routers_of(own))}


def assert_same_end(run: Run, straight: Run) -> None:
    assert figures(run) == figures(straight)
    for name, weights in run.model.weights.items():
        assert torch.equal(weights, straight.model.weights[name]), name


@pytest.mark.nightly  # by day in a full batch: tests/engines/blocks/test_faults.py
@pytest.mark.chaos
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_goes_wrong_in_an_epoch_the_end_has_the_same_bits(
    straight: tuple[lotan.Graph, Run], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that fails after its commit, one that runs twice, and a worker or the Router that is killed as a batch is sent.

    A worker that takes the place of another has none of the rows that the other has kept.
    """
    graph, undisturbed = straight
    steps = undisturbed.report["mini_batches"]["batches"] // 2
    given = {"marks": str(tmp_path), "kind": kind, "batch": steps + 3, **victims()}
    monkeypatch.setattr(on_spark, "SendTask", partial(FaultyTask, **given))
    assert_same_end(fit(graph, width=WIDE, worker_rows="8m"), undisturbed)
    assert (tmp_path / kind).exists()


@pytest.mark.nightly
def test_rows_that_a_worker_has_are_not_sent_again(straight: tuple[lotan.Graph, Run]) -> None:
    graph, undisturbed = straight
    kept, few = (fit(graph, width=WIDE, worker_rows=size, workers=1) for size in ("8m", "2k"))
    for run in (kept, few):
        assert_same_end(run, undisturbed)
    sent = [run.report["bytes"]["messenger_sent"] for run in (undisturbed, few, kept)]
    vertices = undisturbed.report["mini_batches"]["vertices"]
    assert sent[0] - sent[2] > (vertices - VERTICES) * 4 * WIDE * 0.8
    assert sent[1] < sent[0], "some of them fit"


@pytest.mark.nightly
def test_a_task_that_fails_every_time_is_an_error(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"marks": "/there is no such folder", "kind": "raise", "batch": 1}  # epochs of one batch begin at 1
    monkeypatch.setattr(on_spark, "SendTask", partial(FaultyTask, **given))
    monkeypatch.setattr(on_spark, "PASS_ATTEMPTS", 1)
    with pytest.raises(EngineError, match=r"epoch 1, training on mini-batches, batch 1 failed in .*FileNotFoundError"):
        fit(in_spark(spark, tables(), weight="w"), regime=lotan.MiniBatch(100, (2, 2)))


@pytest.mark.nightly
def test_a_resumed_run_equals_the_uninterrupted_one(spark: SparkSession, tmp_path: Path) -> None:
    graph = in_spark(spark, tables(texts=False, weighted=False))
    whole = fit(graph, "GraphSAGE", epochs=3, eval_every=1)
    fit(graph, "GraphSAGE", epochs=2, eval_every=1, checkpoint_dir=tmp_path)
    resumed = fit(graph, "GraphSAGE", epochs=3, eval_every=1, checkpoint_dir=tmp_path, resume=True)
    assert figures(resumed) == figures(whole)


@pytest.mark.nightly
def test_members_of_a_grid_are_what_they_are_alone(spark: SparkSession) -> None:
    graph = in_spark(spark, tables(texts=False, weighted=False))

    def member(kind: str, seed: int) -> lotan.Member:
        torch.manual_seed(0)
        model = getattr(lotan.nn, kind)(WIDTH, 8, 2, CLASSES, dropout=0.5)
        return lotan.Member(model, lotan.Adam(lr=0.01), seed=seed, epochs=2)

    made = [("GraphSAGE", 0), ("GCN", 1)]
    options = {"engine": "blocks", "workers": 2, "partitions": 3, "eval_every": 2}
    members = [member(*one) for one in made]
    with lotan.ModelBatch(graph, members, regime=REGIME, progress=False, **options) as batch:
        batch.train()
        runs = batch.runs()
    for number, (kind, seed) in enumerate(made):
        alone = fit(graph, kind, seed=seed)
        for name, weights in runs[number].model.weights.items():
            torch.testing.assert_close(weights, alone.model.weights[name], rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.nightly
def test_a_persisted_graph_trains_on_mini_batches(spark: SparkSession) -> None:
    graph = in_spark(spark, tables(texts=False, weighted=False))
    alone = fit(graph, "GraphSAGE")
    with lotan.persisted(graph):
        first, second = fit(graph, "GraphSAGE"), fit(graph, "GraphSAGE")
    assert figures(first) == figures(second) == figures(alone)
