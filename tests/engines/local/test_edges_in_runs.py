"""Steps on edges in files run on those that end in some vertices at a time, and find what they find on all at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import lotan
from lotan.engines.base import Pass, run
from lotan.engines.local import pipe_run, topology
from lotan.engines.local.edge_columns import EdgeColumns
from lotan.engines.local.engine import LocalEngine
from lotan.graph import edges_in_files
from lotan.stages.program import StageProgram
from lotan.stages.stage_run import StageResult, StageRun
from lotan.training.learner import weights_of
from planner.local_memory import reads_edges_in_parts
from planner.lower import OUTPUT
from planner.steps.edge_step import EdgeStep

VERTICES, EDGES, MOST = 90, 700, 40


class OfEdges(torch.nn.Module):
    """An MLP on attributes and both ends of edges, after a layer on vertices."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(5, 5)
        self.conv, self.last = pyg.GINEConv(torch.nn.Linear(5, 4), edge_dim=2), pyg.CGConv(4, dim=2)
        self.out = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor) -> torch.Tensor:
        first = self.conv(self.lin(x).relu(), edge_index, edge_attr)
        return self.out(self.last(first, edge_index, edge_attr).relu())


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "GAT": lambda: lotan.nn.GAT(5, 6, 2, 3, heads=3, dropout=0.5),
    "TransformerConv": lambda: pyg.TransformerConv(5, 3, heads=2, concat=False),
    "GINEConv and CGConv": OfEdges,
    "GraphSAGE, max": lambda: lotan.nn.GraphSAGE(5, 6, 2, 3, aggr="max"),
}


def graph(weighted: bool = False) -> lotan.Graph:
    """A graph with hubs, parallel edges, self-loops and vertices without in-edges, of which few are in a split."""
    random = np.random.default_rng(3)
    src, dst = random.integers(0, VERTICES, EDGES), random.integers(0, VERTICES - 20, EDGES)
    dst[:150] = 11
    split = np.full(VERTICES, -1)
    split[[2, 11, 80]], split[[5, 60]] = 0, 1
    weight = random.random(EDGES) if weighted else None
    features, label = random.normal(size=(VERTICES, 5)), random.integers(0, 3, VERTICES)
    attributes = random.normal(size=(EDGES, 2))
    return lotan.Graph.from_arrays(features, src, dst, label, split, weight, edge_attr=attributes)


def evaluated(model: torch.nn.Module, on: lotan.Graph, on_disk: bool) -> tuple[torch.Tensor, np.ndarray]:
    """Evaluate a model by a plan that does not train, and return its output and the metrics."""
    job = lotan.Trainer(model, on, engine="local", progress=False).job
    plan = replace(job.plan, train=(), train_and_evaluate=())
    assert reads_edges_in_parts(plan)
    assert any(isinstance(step, EdgeStep) for step in plan.evaluate) or any(stage.edge_sets for stage in plan.stages)
    with closing(LocalEngine(on_disk=on_disk)) as engine:
        engine.load(on, plan)
        a_pass = Pass(1, weights_of(model), 0)
        predicted = run(engine, plan, plan.predict, a_pass, keep=(OUTPUT,)).columns[OUTPUT].clone()
        metrics = run(engine, plan, plan.evaluate, a_pass).evaluation
        assert metrics is not None
        return predicted, metrics


@pytest.mark.parametrize("name", MODELS)
def test_an_evaluation_on_runs_of_edges_is_that_on_all(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    torch.manual_seed(0)
    model, on = MODELS[name](), graph(weighted=name == "GraphSAGE, max")
    output, metrics = evaluated(model, on, on_disk=False)
    counts, once, program = [], EdgeColumns.run, StageProgram.run

    def counted(self: EdgeColumns, *given: object) -> torch.Tensor:
        counts.append(np.bincount(self.edges.dst, minlength=1))
        return once(self, *given)

    def of_stage(self: StageProgram, given: StageRun) -> StageResult:
        counts.extend(block.indptr.diff().numpy() for block in given.chunk.edges.values())
        return program(self, given)

    monkeypatch.setattr(EdgeColumns, "run", counted)
    monkeypatch.setattr(StageProgram, "run", of_stage)
    for module in (edges_in_files, topology, pipe_run):
        monkeypatch.setattr(module, "EDGES_READ", MOST)
    found, of_runs = evaluated(model, on, on_disk=True)
    assert torch.allclose(found, output, rtol=1e-6, atol=1e-6)
    assert np.allclose(of_runs, metrics, rtol=1e-6)
    assert len(counts) > 10
    assert all(of_run.sum() <= MOST or np.count_nonzero(of_run) == 1 for of_run in counts)
