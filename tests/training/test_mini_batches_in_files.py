"""Mini-batches within a memory limit: features, edges and an evaluation's columns in files, and the bits of a run without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import lotan
from lotan.batches import loader, sampler
from lotan.batches.schedule import Batches
from lotan.engines.local import topology
from lotan.errors import ConfigurationError
from lotan.graph import edges_in_files
from lotan.memory import mapped
from lotan.memory.limit import MemoryLimit
from lotan.memory.mapped import MappedMemory, rows_at
from lotan.training.learner import weights_of
from planner.estimate import column_bytes
from planner.footprint import Footprint
from planner.local_memory import reads_edges_in_parts

VERTICES, EDGES, WIDTH, CLASSES = 120, 900, 6, 3


def columns(seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        "features": random.normal(size=(VERTICES, WIDTH)).astype(np.float32),
        "src": random.integers(0, VERTICES, EDGES),
        "dst": random.integers(0, VERTICES, EDGES),
        "label": random.integers(0, CLASSES, VERTICES),
        "split": np.resize(np.array([0, 1, 2], dtype=np.int8), VERTICES),
        "weight": random.random(EDGES).astype(np.float32),
        "edge_attr": random.normal(size=(EDGES, 2)).astype(np.float32),
    }


class WithAttributes(torch.nn.Module):
    """A message that reads attributes of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GINEConv(torch.nn.Linear(WIDTH, CLASSES), edge_dim=2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor) -> torch.Tensor:
        return self.conv(x, edge_index, edge_attr)


class BothWays(torch.nn.Module):
    """Sums along edges, and along edges turned round."""

    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = pyg.SAGEConv(WIDTH, 8), pyg.SAGEConv(8, CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.back(torch.relu(self.there(x, edge_index)), edge_index.flip(0))


class WithRows(torch.nn.Module):
    """Learned rows beside features."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.conv = lotan.nn.LearnedFeatures(4), lotan.nn.SAGEConv(WIDTH + 4, CLASSES)

    def forward(self, x: torch.Tensor, graph: Any) -> torch.Tensor:
        return self.conv(torch.cat([x, self.rows(graph)], dim=1), graph)


MODELS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "sage": (lambda: lotan.nn.GraphSAGE(WIDTH, 8, 2, CLASSES, dropout=0.3), (3, 2)),
    "hoisted": (lambda: lotan.nn.GraphSAGE(WIDTH, 8, 2, CLASSES), ("all", "all")),
    "gcn": (lambda: lotan.nn.GCN(WIDTH, 8, 2, CLASSES), (3, 3)),
    "gat": (lambda: lotan.nn.GAT(WIDTH, 4, 2, CLASSES, heads=2), (3, 3)),
    "attributes": (WithAttributes, (3,)),
    "both": (BothWays, (3, 3)),
    "rows": (WithRows, (3,)),
}


def trained(place: Path, name: str, limit: str | None, **options: Any) -> tuple[lotan.Trainer, Any]:
    torch.manual_seed(3)
    make, fanouts = MODELS[name]
    regime = lotan.MiniBatch(7, fanouts, **({"order": options.pop("order")} if "order" in options else {}))
    given = {"epochs": 2, "engine": "local", "progress": False, "memory_limit": limit, **options}
    trainer = lotan.Trainer(make(), lotan.Graph.read(place), regime=regime, **given)
    return trainer, trainer.fit()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read in many parts, and so small a graph lies there at all."""
    for module in (edges_in_files, topology):
        monkeypatch.setattr(module, "EDGES_READ", 100)
    monkeypatch.setattr(mapped, "PART_BYTES", 1024)
    monkeypatch.setattr(Footprint, "spills", lambda self, limit: limit is not None)


@pytest.mark.parametrize("name", MODELS)
def test_a_limit_changes_no_bit(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_parts: None) -> None:
    lotan.Graph.from_arrays(**columns()).save(tmp_path)
    regions: list[int] = []

    def counted(array: Any, rows: Any) -> Any:
        found = rows_at(array, rows)
        regions.append(MappedMemory().holds(torch.from_numpy(array)))
        assert np.array_equal(found, array[rows])
        return found

    for module in (loader, sampler):
        monkeypatch.setattr(module, "rows_at", counted)
    free, whole = trained(tmp_path, name, None)
    assert not any(regions)
    limited, found = trained(tmp_path, name, "64g")
    assert any(regions), "batches have read files"
    weights = weights_of(free.model)
    assert all(torch.equal(one, weights[name]) for name, one in weights_of(limited.model).items())
    assert [epoch["loss"] for epoch in found.history] == [epoch["loss"] for epoch in whole.history]
    ours, theirs = (
        [number for epoch in run.history for split in epoch["metrics"].values() for number in split.values()]
        for run in (found, whole)
    )
    assert ours == pytest.approx(theirs, rel=1e-5)


def test_an_order_that_keeps_its_draws_has_the_same_bits(tmp_path: Path, small_parts: None) -> None:
    lotan.Graph.from_arrays(**columns()).save(tmp_path)
    (free, _), (limited, _) = (
        trained(tmp_path, "sage", limit, order="fixed until the elbow") for limit in (None, "64g")
    )
    weights = weights_of(free.model)
    assert all(torch.equal(one, weights[name]) for name, one in weights_of(limited.model).items())


def test_columns_that_are_computed_once_lie_in_files(tmp_path: Path, small_parts: None) -> None:
    lotan.Graph.from_arrays(**columns()).save(tmp_path)
    graph = lotan.Graph.read(tmp_path)
    job = lotan.Trainer(MODELS["hoisted"][0](), graph, regime=lotan.MiniBatch(7, ("all", "all")), engine="local").job
    assert job.batch is not None
    plan, config = job.batch.plan, lotan.TrainerConfig(engine="local", regime=lotan.MiniBatch(7, ("all", "all")))
    assert plan.hoisted
    once = sum(column_bytes(column, job.statistics) for column in plan.hoisted)
    evaluated = MemoryLimit.of(config).needs(job.traits, job.plan, job.statistics, None)
    assert job.needs(config).on_disk == evaluated.on_disk + once
    assert reads_edges_in_parts(plan.only_preparing), "it does not hold all edges at one time"
    batches = Batches(graph.in_files(), plan, lotan.MiniBatch(7, ("all", "all")), epochs=1, in_files=True)
    try:
        held = {name: MappedMemory().holds(column) for name, column in batches._loader._static.items()}
        assert all(held[column.name] for column in plan.hoisted)
    finally:
        batches.close()


def test_a_limit_is_accepted_that_the_evaluation_in_memory_would_exceed(tmp_path: Path) -> None:
    lotan.datasets.generate(100_000, 2_000_000, 16, 8).save(tmp_path)

    def job(limit: int | None) -> Any:
        model, regime = lotan.nn.GraphSAGE(16, 256, 3, 8), lotan.MiniBatch(64, (3, 3, 3))
        given = {"regime": regime, "engine": "local", "memory_limit": limit}
        return lotan.Trainer(model, lotan.Graph.read(tmp_path), **given)

    needs = job(None).job.needs(job(None).config)
    limited = job(int(0.85 * needs.in_memory))
    words = " ".join(limited.explain().split())
    assert (
        "of columns and saved values lie in files, and so do features and edges, of which a batch reads about" in words
    )
    assert "lie in files" not in " ".join(job(2 * needs.in_memory).explain().split())
    with pytest.raises(ConfigurationError, match="memory_limit is"):
        job(needs.in_memory // 2).explain()


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_rows_of_a_file_are_read_region_by_region(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "PART_BYTES", 4096)
    random = np.random.default_rng(0)
    whole = random.integers(0, 1000, (5000, 3)).astype(dtype)
    there = MappedMemory().stored(whole)
    given: list[int] = []
    monkeypatch.setattr(mapped, "give_back", lambda array: given.append(array.nbytes))
    for count in (0, 1, 700):
        rows = random.integers(0, len(whole), count)
        assert np.array_equal(rows_at(there, rows), whole[rows])
    assert max(given) <= 4096
    assert len(given) > 8
    given.clear()
    assert np.array_equal(rows_at(whole, np.array([3, 1, 3])), whole[[3, 1, 3]])
    assert given == []
