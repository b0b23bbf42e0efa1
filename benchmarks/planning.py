"""Milliseconds to plan a model: for one engine, for all to choose one, and with explain's text; stock models of several depths.

    python benchmarks/planning.py [--rounds 7]     writes benchmarks/results/planning.md

The graph is one with known statistics, 169,343 vertices and 2.4 million edges; no row of it is read. Deep models are planned
also where it is known how many vertices are in training: layers are pruned then, and without dropout, where training evaluates
as well, two plans are made to choose from. Models of many relations are explained with the garbage collector paused, as planning
does, and without that. Times are medians of processor time in one process, after a round that is not
counted; of deep models also the least, for other processes only ever add to it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import torch_geometric.nn as pyg
from epoch import machine

import lotan
from lotan import nn
from lotan.engines.choice import ENGINES
from lotan.planning.prepare import plan_for
from lotan.settings.config import TrainerConfig
from lotan.tracing.trace import trace
from planner import Options, compile_plan
from planner.cost.seconds import Pricing
from planner.explain.formats import explain
from planner.loss import LossSpec
from planner.statistics import Statistics

RESULTS = Path(__file__).parent / "results" / "planning.md"
MODELS = {"GCN": nn.GCN, "GraphSAGE": nn.GraphSAGE, "GIN": nn.GIN, "GAT": nn.GAT}
LAYERS = (2, 16, 64)
WIDTH, HIDDEN, CLASSES = 128, 256, 40
GRAPH = Statistics(vertices=169_343, edges=2_400_000, width=WIDTH)
TRAINING = {  # vertices in training and in any split, where they are known
    "not known": GRAPH,
    "1,000": replace(GRAPH, training=1_000),
    "1,000 of 1,400": replace(GRAPH, training=1_000, evaluated=1_400),
    "91,000 of all": replace(GRAPH, training=91_000, evaluated=GRAPH.vertices),
}
DROPOUT = (0.5, 0.0)
RELATIONS = (60, 237)
LOSS = LossSpec("classification", CLASSES, 1e5)


def milliseconds(run: Callable[[], object], rounds: int) -> tuple[float, float]:
    """The median and the least of a few runs after one that is not counted."""
    run()
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return 1000 * statistics.median(taken), 1000 * min(taken)


def row(kind: str, layers: int, rounds: int) -> str:
    model = MODELS[kind](WIDTH, HIDDEN, layers, CLASSES, dropout=0.5)
    specs = [trace(model, WIDTH, training=training) for training in (True, False)]
    options = Options(pricing=Pricing(ENGINES["local"]))
    plan, _ = milliseconds(lambda: compile_plan(*specs, LOSS, GRAPH, options), rounds)
    said, _ = milliseconds(lambda: explain(compile_plan(*specs, LOSS, GRAPH, options)), max(1, rounds // 3))
    small, config = lotan.datasets.generate(100, 300, WIDTH, CLASSES), TrainerConfig()
    chosen, _ = milliseconds(lambda: plan_for(*specs, LOSS, small, config, GRAPH), rounds)
    planned = compile_plan(*specs, LOSS, GRAPH, options)
    steps = sum(map(len, planned.plan.passes[:-1]))
    return f"| {kind} | {layers} | {len(specs[0].calls)} | {steps} | {plan:.1f} | {chosen:.0f} | {said:.0f} |"


def deep_row(kind: str, dropout: float, rounds: int) -> str:
    """Of the deepest model, for each that may be known of the graph."""
    model = MODELS[kind](WIDTH, HIDDEN, LAYERS[-1], CLASSES, dropout=dropout)
    specs = [trace(model, WIDTH, training=training) for training in (True, False)]
    options = Options(pricing=Pricing(ENGINES["local"]))
    times = [milliseconds(partial(compile_plan, *specs, LOSS, known, options), rounds) for known in TRAINING.values()]
    return f"| {kind} | {dropout} | {' | '.join(f'{median:.0f} ({least:.0f})' for median, least in times)} |"


def relations_row(relations: int) -> str:
    """Measure explain for PyG's RGCN with two layers. The graph is small, because plans do not depend on its size."""
    drawn = np.random.default_rng(0)
    ends = {name: drawn.integers(0, 300, 20 * relations) for name in ("src", "dst")}
    given = {"features": drawn.standard_normal((300, 16), np.float32), "label": drawn.integers(0, 4, 300)}
    types = np.arange(20 * relations) % relations
    graph = lotan.Graph.from_arrays(**given, **ends, edge_type=types, split=np.zeros(300, dtype=np.int8))
    trainer = lotan.Trainer(Relational(relations), graph, engine="local", epochs=1)
    trainer.job  # noqa: B018
    paused = milliseconds(trainer.explain, 1)[0] / 1000
    with patch("gc.disable", lambda: None):
        collecting = milliseconds(trainer.explain, 1)[0] / 1000
    return f"| {relations} | {paused:.1f} | {collecting:.1f} |"


class Relational(torch.nn.Module):
    """Two of PyG's layers with a matrix for each relation."""

    def __init__(self, relations: int) -> None:
        super().__init__()
        self.first, self.second = pyg.RGCNConv(16, 8, relations), pyg.RGCNConv(8, 4, relations)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_type: torch.Tensor) -> torch.Tensor:
        """Return a row of scores for each vertex."""
        out: torch.Tensor = self.second(self.first(x, edge_index, edge_type).relu(), edge_index, edge_type)
        return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS, help="where to write the table")
    arguments = parser.parse_args()
    rows = [row(kind, layers, arguments.rounds) for kind in MODELS for layers in LAYERS]
    deep = [deep_row(kind, dropout, arguments.rounds) for kind in MODELS for dropout in DROPOUT]
    related = [relations_row(relations) for relations in RELATIONS]
    text = f"""# Planning

`python benchmarks/planning.py` on {machine()}
Processor time, medians of {arguments.rounds}. `plan` is compile_plan, for one engine; `choice`, that for each of the
engines, which have in common what does not depend on them, with the memory and the seconds that decide between them: what
`auto` takes; `explain`, the plan and its text, which plans again without each rule fired.

| model | layers | calls | steps | plan, ms | choice, ms | explain, ms |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}

## Pruned

Milliseconds to plan {LAYERS[-1]} layers, the median (least), by how many vertices are known to be in training, of how many in
any split.

| model | dropout | {" | ".join(TRAINING)} |
|---|---|{"---|" * len(TRAINING)}
{chr(10).join(deep)}

## Many relations

Processor seconds of `explain` for two layers of PyG's RGCNConv. Planning pauses Python's garbage collector, which would look for
cycles among a million objects that have none.

| relations | paused, s | not paused, s |
|---|---|---|
{chr(10).join(related)}
"""
    arguments.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
