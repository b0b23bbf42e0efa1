"""Vertex classification from a disk: the same bits as in memory over the same parts of the graph, in the same order."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import lotan
from lotan.batches.examples import batches_of_epoch, examples_of
from lotan.batches.loader import BatchLoader, Elsewhere
from lotan.batches.sampler import Sampler
from lotan.engines.base import Pass, run
from lotan.engines.local import topology
from lotan.engines.local.engine import LocalEngine
from lotan.errors import ConfigurationError, ModelError, StorageError
from lotan.graph import edges_in_files
from lotan.graph.arrays import GraphArrays, edge_order
from lotan.planning.job import Job
from lotan.planning.learned import draw_rows
from lotan.stages.randomness import Randomness
from lotan.storage import row_files
from lotan.storage.folder import HELD, claimed_storage
from lotan.storage.placement import ExamplesFirst, Placement
from lotan.storage.stored_vertices import StoredVertices
from lotan.training.learner import weights_of
from lotan.training.passes import mean_of_batch
from planner.footprint import Footprint
from planner.orders.vertex_division import divide_vertices
from tests.training.test_checkpoints_within_epochs import dying_after

CACHED, ONCE = "cached_nodes(partitions=8, buffer=5)", "each_once(partitions=7, buffer=3)"
EPOCHS, SIZE, WIDTH, CLASSES = 2, 5, 6, 3


def columns(seed: int = 0, vertices: int = 60, edges: int = 420) -> dict[str, Any]:
    """The arrays of a graph of which a third of the vertices is trained on."""
    random = np.random.default_rng(seed)
    return {
        "features": random.normal(size=(vertices, WIDTH)).astype(np.float32),
        "src": random.integers(0, vertices, edges),
        "dst": random.integers(0, vertices, edges),
        "label": random.integers(0, CLASSES, vertices),
        "split": np.resize(np.array([0, 1, 2], dtype=np.int8), vertices),
    }


def sage(kind: Any = pyg.GraphSAGE) -> torch.nn.Module:
    torch.manual_seed(3)
    model: torch.nn.Module = kind(WIDTH, 8, 2, CLASSES)
    return model


def trainer(order: str = CACHED, model: torch.nn.Module | None = None, **settings: Any) -> lotan.Trainer:
    """A Trainer whose features lie on a disk."""
    given = {
        "regime": lotan.MiniBatch(SIZE, settings.pop("fanouts", (3, 3)), seed=2, order=order),
        "optimizer": lotan.Adam(lr=0.05),
        "epochs": EPOCHS,
        "progress": False,
    }
    graph = settings.pop("graph", None) or lotan.Graph.from_arrays(**columns())
    return lotan.Trainer(model or sage(), graph, **{**given, **settings})


def parts(asked: lotan.Trainer, epoch: int) -> Iterator[tuple[GraphArrays, np.ndarray, np.ndarray]]:
    """The part of the graph that each set of an epoch has, the examples there, and its rows in the graph.

    They are found without partitions on a disk.
    """
    job = asked.job
    assert job.stored_vertices is not None
    arrays, division = asked.graph.arrays(), job.stored_vertices.division
    sizes = len(arrays.ids), division.partitions, 2
    examples = examples_of(arrays)
    placement = ExamplesFirst(*sizes, examples) if division.order == "cached_nodes" else Placement(*sizes)
    partition = placement.partition_of(placement.positions(np.arange(len(arrays.ids))))
    order = division.of_epoch(2, epoch)
    for held, own in zip(order.sets, order.partitions, strict=True):
        rows = np.flatnonzero(np.isin(partition, held))
        rows = rows[np.argsort(placement.positions(rows))]
        place = np.full(len(arrays.ids), -1)
        place[rows] = np.arange(len(rows))
        kept = (place[arrays.src] >= 0) & (place[arrays.dst] >= 0)
        src, dst = place[arrays.src[kept]], place[arrays.dst[kept]]
        weight, attributes = (None if column is None else column[kept] for column in (arrays.weight, arrays.edge_attr))
        turn = np.lexsort((*edge_order(weight, attributes, None), src, dst))
        targets = np.sort(place[examples[np.isin(partition[examples], own)]])
        split = np.zeros(len(rows), dtype=np.int8)
        yield (
            GraphArrays(
                arrays.ids[rows],
                arrays.features[rows],
                arrays.label[rows],
                split,
                src[turn],
                dst[turn],
                weight=None if weight is None else weight[turn],
                edge_attr=None if attributes is None else attributes[turn],
            ),
            targets,
            rows,
        )


def in_memory(asked: lotan.Trainer) -> dict[str, torch.Tensor]:
    """Train on these parts with everything in memory, and return the weights."""
    job, config, engine = asked.job, asked.config, LocalEngine()
    assert job.batch is not None
    plan, model, regime = job.batch.plan, deepcopy(asked.model), config.regime
    draw_rows(model, asked.graph, config)
    learned = list(job.train.learned)
    assert isinstance(regime, lotan.MiniBatch)
    loss = next(stage.loss for stage in plan.stages if stage.loss is not None)
    optimizer = config.optimizer.build(dict(model.named_parameters()), learned)
    for epoch in range(1, EPOCHS + 1):
        number = 0
        for arrays, targets, rows in parts(asked, epoch):
            places = Elsewhere(torch.from_numpy(rows), {})
            sampler, loader = Sampler(arrays), BatchLoader(lotan.Graph.of_arrays(arrays), plan, elsewhere=places)
            of_epoch = batches_of_epoch(targets, arrays.keys, SIZE, Randomness(2, epoch)) if len(targets) else []
            for chosen in of_epoch:
                sample = sampler.sample(chosen, regime.fanouts, Randomness(2, epoch, batch=number))
                engine.turn_to(loader.load(sample))
                found = run(engine, plan, plan.train, Pass(epoch, weights_of(model), config.seed, batch=number))
                found = mean_of_batch(found, loss)
                for name, parameter in model.named_parameters():
                    gradient = found.gradients[name]
                    parameter.grad = gradient if name in learned else gradient.view_as(parameter)
                optimizer.step()
                number += 1
    engine.close()
    return weights_of(model)


@pytest.mark.parametrize(
    ("order", "kind"),
    [(CACHED, pyg.GraphSAGE), (ONCE, pyg.GCN), (ONCE, pyg.GraphSAGE)],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_the_weights_have_the_bits_of_a_run_in_memory(tmp_path: Path, order: str, kind: Any) -> None:
    asked = trainer(order, sage(kind), storage_dir=tmp_path, eval_every=0)
    wanted = in_memory(asked)
    run = asked.fit()
    for name, weight in weights_of(asked.model).items():
        assert torch.equal(weight, wanted[name]), name
    assert run.report["mini_batches"]["read_bytes"] > 0
    assert set(run.metrics) == {"train", "val", "test"}
    whole = asked.model.eval()(torch.from_numpy(asked.graph.arrays().features), torch.from_numpy(edges(asked)))
    labels, split = (torch.from_numpy(getattr(asked.graph.arrays(), name)) for name in ("label", "split"))
    right = (whole.argmax(1) == labels)[split == 2].float().mean().item()
    assert run.metrics["test"]["accuracy"] == pytest.approx(right)
    again = trainer(order, sage(kind), storage_dir=tmp_path, eval_every=0)  # on the partitions that are there
    again.fit()
    assert all(torch.equal(one, wanted[name]) for name, one in weights_of(again.model).items())


WEIGHTS = {"weight": np.random.default_rng(1).uniform(0.1, 2.0, 420).astype(np.float32)}
ATTRIBUTES = {"edge_attr": np.random.default_rng(2).normal(size=(420, 2)).astype(np.float32)}


class WithAttributes(torch.nn.Module):
    """A layer of PyG's that reads attributes of edges."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv = pyg.GINEConv(torch.nn.Linear(WIDTH, CLASSES), edge_dim=2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor) -> torch.Tensor:
        return self.conv(x, edge_index, edge_attr)


@pytest.mark.parametrize(
    ("given", "model", "fanouts"),
    [(WEIGHTS, lambda: sage(pyg.GCN), (3, 3)), (ATTRIBUTES, WithAttributes, (3,))],
    ids=["weights", "attributes"],
)
def test_weights_and_attributes_of_edges_lie_on_the_disk_too(
    tmp_path: Path, given: Any, model: Any, fanouts: tuple[int, ...]
) -> None:
    graph = lotan.Graph.from_arrays(**columns(), **given)
    asked = trainer(ONCE, model(), graph=graph, storage_dir=tmp_path, eval_every=0, fanouts=fanouts)
    wanted = in_memory(asked)
    asked.fit()
    plain = trainer(ONCE, storage_dir=tmp_path / "plain", eval_every=0)
    plain.fit()
    for name, weight in weights_of(asked.model).items():
        assert torch.equal(weight, wanted[name]), name
    sizes = [(place / "edges.bin").stat().st_size for place in (tmp_path, tmp_path / "plain")]
    numbers = sum(column[0].size for column in given.values())
    assert sizes == [420 * (12 + 4 * numbers), 420 * 12]
    of_run, of_plain = asked.job.stored_vertices, plain.job.stored_vertices
    assert of_run is not None
    assert of_plain is not None
    assert of_run.bytes > of_plain.bytes


def edges(asked: lotan.Trainer) -> np.ndarray:
    arrays = asked.graph.arrays()
    return np.stack([arrays.src, arrays.dst])


@pytest.mark.parametrize("order", [CACHED, ONCE])
def test_the_steps_are_those_of_autograd_on_the_parts(order: str) -> None:
    asked = trainer(order, fanouts=("all", "all"), optimizer=lotan.SGD(lr=0.3), eval_every=0)
    theirs = deepcopy(asked.model)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.3)
    for epoch in range(1, EPOCHS + 1):
        for arrays, targets, _ in parts(asked, epoch):
            x, ends = torch.from_numpy(arrays.features), torch.from_numpy(np.stack([arrays.src, arrays.dst]))
            of_epoch = batches_of_epoch(targets, arrays.keys, SIZE, Randomness(2, epoch)) if len(targets) else []
            for chosen in map(torch.from_numpy, of_epoch):
                optimizer.zero_grad()
                out, label = theirs(x, ends)[chosen], torch.from_numpy(arrays.label)[chosen]
                torch.nn.functional.cross_entropy(out, label).backward()
                optimizer.step()
    asked.fit()
    for name, weight in theirs.named_parameters():
        torch.testing.assert_close(asked.model.get_parameter(name), weight, rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_a_run_goes_on_after_a_kill_while_it_writes_and_between_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = trainer(ONCE)
    history = [epoch["metrics"] for epoch in wanted.fit().history]
    write = row_files.RowFiles.write

    def cut(self: row_files.RowFiles, partition: int, epoch: int, given: Any) -> int:
        found = write(self, partition, epoch, given)
        if partition == 3:
            path = self.path(partition, epoch)
            path.write_bytes(path.read_bytes()[:-4])
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patched:
        patched.setattr(row_files.RowFiles, "write", cut)
        with pytest.raises(KeyboardInterrupt):
            trainer(ONCE, checkpoint_dir=tmp_path).fit()
    trainer(ONCE, checkpoint_dir=tmp_path, epochs=1).fit()
    asked = trainer(ONCE, checkpoint_dir=tmp_path, resume=True)
    run = asked.fit()
    assert [epoch["metrics"] for epoch in run.history] == history
    assert all(torch.equal(one, asked.model.get_parameter(name)) for name, one in wanted.model.named_parameters())
    place = next((tmp_path / "storage" / "features").glob("3.0.bin"))
    rows = place.read_bytes()
    place.write_bytes(rows[:-1] + b"?")
    trainer(ONCE, checkpoint_dir=tmp_path, resume=True, epochs=3).fit()
    assert place.read_bytes() == rows, "it is written anew"


@pytest.mark.parametrize("order", [CACHED, ONCE])
def test_a_run_goes_on_within_an_epoch_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    options = {"checkpoint_dir": tmp_path, "checkpoint_batches": 2}
    wanted = trainer(order)
    whole = wanted.fit()
    of_epoch = whole.report["mini_batches"]["batches"] // EPOCHS
    with dying_after(monkeypatch, of_epoch + 3):
        trainer(order, **options).fit()
    part = torch.load(tmp_path / "last.pt", weights_only=True)["part"]
    assert part["batches"] == 2
    asked = trainer(order, **options, resume=True)
    run = asked.fit()
    assert [epoch["metrics"] for epoch in run.history] == [epoch["metrics"] for epoch in whole.history]
    assert all(torch.equal(one, asked.model.get_parameter(name)) for name, one in wanted.model.named_parameters())
    assert run.report["mini_batches"]["batches"] == of_epoch - 2


@pytest.mark.thorough
def test_another_division_and_another_graph_are_refused(tmp_path: Path) -> None:
    trainer(CACHED, storage_dir=tmp_path, epochs=1).fit()
    others = (ONCE, "7 partitions"), (CACHED.replace("cached_nodes", "each_once"), "8 partitions")
    for order, words in others:
        reason = f"holds 8 partitions drawn with seed 2, with the training vertices in the first of them, and this needs {words}"
        asked = trainer(order, storage_dir=tmp_path)
        assert f"a run would be refused: {tmp_path} {reason}" in asked.explain()
        with pytest.raises(StorageError, match=reason):
            asked.fit()
    trainer(CACHED.replace("buffer=5", "buffer=6"), storage_dir=tmp_path, epochs=1).fit()
    with pytest.raises(StorageError, match="another graph"):
        trainer(storage_dir=tmp_path, graph=lotan.Graph.from_arrays(**columns(1))).fit()


@pytest.mark.thorough
def test_files_and_undirected_graphs_train_alike(tmp_path: Path) -> None:
    lotan.Graph.from_arrays(**columns()).save(tmp_path / "graph")
    runs = [
        trainer(ONCE, graph=graph)
        for graph in (
            lotan.Graph.from_arrays(**columns(), undirected=True),
            lotan.Graph.read(tmp_path / "graph", undirected=True),
        )
    ]
    for one in runs:
        one.fit()
    for name, weight in runs[0].model.named_parameters():
        assert torch.equal(weight, runs[1].model.get_parameter(name))


def test_explain_computes_no_schedule_for_forms_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Job) -> None:
        raise AssertionError("the schedule was computed")

    explained = trainer()
    assert explained.job.training_seconds > 0  # the head of each form has them, and they count the wait for the disk
    monkeypatch.setattr(Job, "schedule", property(refused))
    assert "flowchart" in explained.explain("mermaid")
    assert explained.explain(stage="logical")
    with pytest.raises(AssertionError, match="was computed"):
        explained.explain()


def weighted_gcn() -> torch.nn.Module:
    torch.manual_seed(3)
    return lotan.nn.GCN(WIDTH, 8, 2, CLASSES)


def rows() -> torch.nn.Module:
    return WithRows()


def attention() -> torch.nn.Module:
    torch.manual_seed(3)
    return lotan.nn.GAT(WIDTH, 4, 2, CLASSES, heads=2)


@pytest.mark.parametrize("model", [sage, weighted_gcn, rows, attention])
def test_an_evaluation_with_edges_in_files_has_the_bits_of_one_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Any
) -> None:
    for module in (edges_in_files, topology):
        monkeypatch.setattr(module, "EDGES_READ", 50)
    lotan.Graph.from_arrays(**columns(), **(WEIGHTS if model is weighted_gcn else {})).save(tmp_path)

    def asked(limit: str | None) -> lotan.Trainer:
        graph, one = lotan.Graph.read(tmp_path), model()
        return trainer(ONCE, one, graph=graph, fanouts=(3,) * (1 + (model is not rows)), memory_limit=limit)

    monkeypatch.setattr(Footprint, "spills", lambda self, limit: limit is not None)  # so small a graph has no need to
    free, limited = asked(None), asked("64g")
    assert "evaluates on the whole graph, with columns and edges in memory" in free.explain()
    assert "evaluates on the whole graph, with columns and edges in files" in limited.explain()
    whole, found = free.fit(), limited.fit()
    ours, theirs = (
        [number for epoch in one.history for split in epoch["metrics"].values() for number in split.values()]
        for one in (found, whole)
    )
    assert ours == pytest.approx(theirs, rel=1e-5 if model is attention else 0, abs=0)  # products have other rows
    weights = weights_of(free.model)
    assert all(torch.equal(one, weights[name]) for name, one in weights_of(limited.model).items())


def test_explain_prints_the_schedule() -> None:
    text = trainer().explain()
    for part in (
        "cached_nodes, 5 of 8 partitions in memory, 3 of them with all training vertices",
        "an epoch has 1 set and 0 swaps of a partition",
        "S1  0 1 2",
        "== evaluation",
    ):
        assert part in text
    assert "an epoch has 5 sets and 4 swaps of a partition" in trainer(ONCE).explain()


def test_the_memory_limit_decides_the_partitions() -> None:
    on = lotan.datasets.generate(4000, 16_000, 64, CLASSES)
    model = lotan.nn.GraphSAGE(64, 8, 2, CLASSES)

    def with_limit(limit: str | int) -> tuple[StoredVertices, int]:
        asked = trainer("each_once", model, graph=on, memory_limit=limit)
        assert asked.job.stored_vertices is not None
        return asked.job.stored_vertices, asked.job.needs(asked.config).least

    plenty, needed = with_limit("4g")
    assert plenty.division.capacity == plenty.division.partitions
    least = needed - plenty.bytes + divide_vertices("each_once", plenty.sizes, 0, 4096).bytes(plenty.sizes)
    scarce, needed = with_limit(least)
    assert needed <= least
    assert scarce.division.capacity < scarce.division.partitions
    with pytest.raises(ConfigurationError, match="memory_limit"):
        with_limit(least - 1)
    with pytest.raises(ConfigurationError, match="needs memory_limit"):
        trainer("each_once").explain()


def test_a_limit_that_is_refused_before_the_graph_is_read_says_what_is_not_counted(tmp_path: Path) -> None:
    lotan.Graph.from_arrays(**columns()).save(tmp_path)
    with pytest.raises(
        ConfigurationError, match=r"the least that would do is \d+m \(local\), and more for mini-batches"
    ):
        trainer("each_once", graph=lotan.Graph.read(tmp_path), memory_limit="10m").explain()


def test_partitions_that_are_on_the_disk_are_taken(tmp_path: Path) -> None:
    trainer(ONCE, storage_dir=tmp_path, epochs=1).fit()
    given = {"memory_limit": "4g", "epochs": 1}
    for order, partitions in (("each_once", 7), ("cached_nodes", 1)):
        job = trainer(order, storage_dir=tmp_path, **given).job.stored_vertices
        assert job is not None
        assert job.division.partitions == partitions
    asked, alone = trainer("each_once", storage_dir=tmp_path, **given), trainer("each_once", **given)
    asked.fit()
    assert alone.job.stored_vertices is not None
    assert alone.job.stored_vertices.division.partitions == 1


def on_read_only_media(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let nothing in a folder be written."""
    opened, able = os.open, os.access

    def refusing(path: Any, flags: int, *mode: int, **more: Any) -> int:
        if isinstance(path, str | Path) and Path(path).is_relative_to(folder) and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *mode, **more)

    monkeypatch.setattr(os, "open", refusing)
    monkeypatch.setattr(os, "access", lambda path, mode: not Path(path).is_relative_to(folder) and able(path, mode))


@pytest.mark.parametrize("order", [CACHED, ONCE])
def test_whole_partitions_on_read_only_media_are_trained_from(
    order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = tmp_path / "parts"
    first = trainer(order, storage_dir=parts)
    first.fit()
    (parts / HELD).unlink()  # a copy on such media has none
    on_read_only_media(monkeypatch, parts)
    asked = trainer(order, storage_dir=parts)
    assert "would be refused" not in asked.explain()
    with claimed_storage(parts, only_reads=True):  # another run reads it too
        asked.fit()
    assert all(torch.equal(one, first.model.get_parameter(name)) for name, one in asked.model.named_parameters())
    with pytest.raises(StorageError, match="Read-only file system; mount it for writing"):
        with_rows(order, storage_dir=parts).fit()
    (parts / "manifest.json").rename(tmp_path / "manifest.json")
    with pytest.raises(StorageError, match="no run has written it"):
        trainer(order, storage_dir=parts).fit()


@pytest.mark.parametrize("order", ["cached_nodes", "each_once"])
def test_a_run_goes_on_with_its_partitions_under_a_higher_limit(tmp_path: Path, order: str) -> None:
    on = lotan.datasets.generate(4000, 16_000, 64, CLASSES)

    def with_limit(limit: str | int, epochs: int = 2, **more: Any) -> lotan.Trainer:
        model = sage(lambda *given: lotan.nn.GraphSAGE(64, *given[1:]))
        regime = lotan.MiniBatch(500, (3, 3), seed=2, order=order)
        return trainer(order, model, graph=on, memory_limit=limit, epochs=epochs, regime=regime, eval_every=0, **more)

    plenty = with_limit("4g")
    stored = plenty.job.stored_vertices
    assert stored is not None
    needed = plenty.job.needs(plenty.config).least
    least = needed - stored.bytes + divide_vertices(stored.division.order, stored.sizes, 0, 4096).bytes(stored.sizes)
    whole = with_limit(least)
    wanted = whole.job.stored_vertices
    whole.fit()
    with_limit(least, 1, checkpoint_dir=tmp_path).fit()
    again = with_limit("4g", checkpoint_dir=tmp_path, resume=True)
    job = again.job.stored_vertices
    assert job is not None
    assert wanted is not None
    assert job.division == wanted.division != stored.division
    assert len(again.fit().history) == 2
    for name, weight in weights_of(whole.model).items():
        assert torch.equal(weight, weights_of(again.model)[name]), name


class WithRows(torch.nn.Module):
    """Learned rows beside features, and a layer over both."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.rows, self.lin = lotan.nn.LearnedFeatures(4), torch.nn.Linear(WIDTH, 4)
        self.conv = lotan.nn.SAGEConv(4, CLASSES)

    def forward(self, x: torch.Tensor, graph: object) -> torch.Tensor:
        return self.conv(self.rows(graph) + self.lin(x), graph)


class WithEmbedding(WithRows):
    """Rows in torch's own module, of which none is stored."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Embedding(60, 4)

    def forward(self, x: torch.Tensor, graph: object) -> torch.Tensor:
        return self.conv(self.rows.weight + self.lin(x), graph)


def with_rows(order: str = ONCE, **settings: Any) -> lotan.Trainer:
    return trainer(order, WithRows(), **{"fanouts": (3,), **settings})


@pytest.mark.parametrize(
    ("order", "optimizer"),
    [(CACHED, lotan.Adam(lr=0.05)), (ONCE, lotan.Adam(lr=0.05)), (ONCE, lotan.Adagrad(lr=0.1))],
    ids=["cached", "once", "adagrad"],
)
def test_learned_rows_have_the_bits_of_a_run_in_memory(tmp_path: Path, order: str, optimizer: Any) -> None:
    asked = with_rows(order, storage_dir=tmp_path, eval_every=0, optimizer=optimizer)
    wanted = in_memory(asked)
    assert not asked.model.rows.has_rows  # planning has drawn none
    run = asked.fit()
    for name, weight in weights_of(asked.model).items():
        assert torch.equal(weight, wanted[name]), name
    assert run.report["mini_batches"]["written_bytes"] > 0
    arrays = asked.graph.arrays()
    predicted = run.predict().sort_values("id")["prediction"]
    right = (np.asarray(predicted) == arrays.label)[arrays.split == 2].mean()
    assert run.metrics["test"]["accuracy"] == pytest.approx(right)


@pytest.mark.parametrize("every", [None, 2])
def test_learned_rows_go_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int | None) -> None:
    options = {"checkpoint_dir": tmp_path, "checkpoint_batches": every, "epochs": 3}
    wanted = with_rows(epochs=3)
    whole = wanted.fit()
    of_epoch = whole.report["mini_batches"]["batches"] // 3
    with dying_after(monkeypatch, of_epoch + 3):
        with_rows(**options).fit()
    with pytest.raises(StorageError, match="earlier run"):
        with_rows(**options).fit()
    asked = with_rows(**options, resume=True)
    run = asked.fit()
    assert [epoch["metrics"] for epoch in run.history] == [epoch["metrics"] for epoch in whole.history]
    assert all(torch.equal(one, asked.model.get_parameter(name)) for name, one in wanted.model.named_parameters())


def test_the_memory_of_learned_rows_is_that_of_the_buffer(tmp_path: Path) -> None:
    on = lotan.datasets.generate(4000, 16_000, WIDTH, CLASSES)

    def needed(width: int) -> tuple[StoredVertices, int]:
        model = WithRows()
        model.rows, model.lin = lotan.nn.LearnedFeatures(width), torch.nn.Linear(WIDTH, width)
        model.conv = lotan.nn.SAGEConv(width, CLASSES)
        asked = trainer("each_once(partitions=8, buffer=2)", model, graph=on, fanouts=(3,))
        assert asked.job.stored_vertices is not None
        return asked.job.stored_vertices, asked.job.needs(asked.config).least

    (few, _), (many, least) = needed(4), needed(400)
    of_buffer = 3 * 500 * 4 * 3 * 396  # three partitions of 500 rows, with Adam's two states
    assert many.division.buffer_bytes(many.sizes) - few.division.buffer_bytes(few.sizes) == of_buffer
    assert many.schedule(0.0).written_bytes == 4000 * 4 * 3 * 400
    assert least < many.bytes + 4000 * 4 * 400 * 5 + (1 << 30)


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"task": lotan.LinkPrediction()}, ConfigurationError, "take 'comet' or 'beta'"),
        (
            {"order": "comet(partitions=8, buffer=4, groups=4)"},
            ConfigurationError,
            "take 'cached_nodes' or 'each_once'",
        ),
        ({"order": "cached_nodes(partitions=8, buffer=2)"}, ConfigurationError, "buffer of at least 3"),
        ({"order": "cached_nodes(partitions=8, buffer=1)"}, ConfigurationError, r"each_once\(partitions=8, buffer=2\)"),
        ({"order": "each_once(partitions=80, buffer=2)"}, ConfigurationError, "more partitions than"),
        ({"engine": "rows"}, ConfigurationError, "engine"),
        ({"tables": 1}, ConfigurationError, "tables"),
        ({"model": WithEmbedding(), "fanouts": (3,)}, ModelError, "use LearnedFeatures"),
        ({"model": WithRows(), "fanouts": (3,), "clip_grad_norm": 1.0}, ConfigurationError, "clip_grad_norm sums"),
        (
            {"model": WithRows(), "fanouts": (3,), "optimizer": lotan.RMSprop()},
            ConfigurationError,
            "RMSprop has no form",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_built_is_refused_by_name(settings: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        trainer(**settings).fit()


@pytest.mark.parametrize(
    ("order", "text"),
    [("each_once(partitions=4)", "give all of"), ("each_once(partitions=4, buffer=1)", "at least two partitions"),
     ("cached_nodes(partitions=4, buffer=5)", "at most all"), ("hilbert", "cached_nodes")],
)  # fmt: skip
def test_orders_that_make_no_sense_are_refused(order: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        lotan.MiniBatch(8, (2,), order=order)
