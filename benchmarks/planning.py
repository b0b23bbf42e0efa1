"""Milliseconds to plan a model: compile_plan alone, and with explain's text, for stock models of several depths.

    python benchmarks/planning.py [--rounds 7]     writes benchmarks/results/planning.md

The graph is one with known statistics, 169,343 vertices and 2.4 million edges; no row of it is read. Times are medians of
processor time in one process, after a round that is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from epoch import machine

from lotan import nn
from lotan.engines.choice import ABILITIES
from lotan.tracing import trace
from planner import Options, compile_plan
from planner.explain import explain
from planner.spec import LossSpec, Statistics

RESULTS = Path(__file__).parent / "results" / "planning.md"
MODELS = {"GCN": nn.GCN, "GraphSAGE": nn.GraphSAGE, "GIN": nn.GIN, "GAT": nn.GAT}
LAYERS = (2, 16, 64)
WIDTH, HIDDEN, CLASSES = 128, 256, 40
GRAPH = Statistics(vertices=169_343, edges=2_400_000, width=WIDTH)
LOSS = LossSpec("classification", CLASSES, 1e5)


def milliseconds(run: Callable[[], object], rounds: int) -> float:
    """The median of a few runs after one that is not counted."""
    run()
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return 1000 * statistics.median(taken)


def row(kind: str, layers: int, rounds: int) -> str:
    model = MODELS[kind](WIDTH, HIDDEN, layers, CLASSES, dropout=0.5)
    specs = [trace(model, WIDTH, training=training) for training in (True, False)]
    options = Options(abilities=ABILITIES["local"])
    plan = milliseconds(lambda: compile_plan(*specs, LOSS, GRAPH, options), rounds)
    said = milliseconds(lambda: explain(compile_plan(*specs, LOSS, GRAPH, options)), max(1, rounds // 3))
    planned = compile_plan(*specs, LOSS, GRAPH, options)
    steps = sum(map(len, planned.plan.passes[:-1]))
    return f"| {kind} | {layers} | {len(specs[0].calls)} | {steps} | {plan:.1f} | {said:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS, help="where to write the table")
    arguments = parser.parse_args()
    rows = [row(kind, layers, arguments.rounds) for kind in MODELS for layers in LAYERS]
    text = f"""# Planning

`python benchmarks/planning.py` on {machine()}
Processor time, medians of {arguments.rounds}. `plan` is compile_plan; `explain`, that and the text, which plans again without
each rule fired.

| model | layers | calls | steps | plan, ms | explain, ms |
|---|---|---|---|---|---|
{chr(10).join(rows)}
"""
    arguments.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
