"""Bytes that a pass moves between memory and files: columns held as planned, the last ones used (LRU), and none (streaming).

    python benchmarks/columns.py     writes benchmarks/results/columns.md

A simulation: plans for a graph of the sizes of Reddit, of which no row is read. The memory is a share of what all columns of the
training pass take together. "whole": a step has all that it reads and makes in memory, as operators on a GPU have; the edges
are a column that sums read, of 8 bytes an edge. This is what ROC (MLSys 2020) measures; its models' widths are not published.
"parts": as `local` runs the plan, whose steps read and write columns in files part by part. Bytes are those that are read, and
with those that are stored.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from epoch import machine

from lotan import nn
from lotan.engines.choice import ENGINES
from lotan.tracing.trace import trace
from planner import Options, compile_plan
from planner.cost.seconds import Pricing
from planner.holding.budget import pass_uses
from planner.holding.hold_columns import Holding, hold_nothing, hold_recent, least_moved
from planner.holding.memory_use import MemoryUse, Uses
from planner.layout import Layout
from planner.loss import LossSpec
from planner.physical import Plan
from planner.shares import Crew
from planner.statistics import Statistics
from planner.steps.propagate import PropagateStep

RESULTS = Path(__file__).parent / "results" / "columns.md"
WIDTH, HIDDEN, CLASSES = 602, 256, 41
REDDIT = Statistics(vertices=232_965, edges=114_600_000, width=WIDTH)
EDGE_BYTES = 8
MODELS = {"GCN": nn.GCN, "GIN": nn.GIN, "GraphSAGE": nn.GraphSAGE}
CASES = (("GCN", 2), ("GCN", 3), ("GCN", 4), ("GIN", 3), ("GraphSAGE", 3), ("GraphSAGE", 4))  # models and their layers
SHARES = (0.0, 0.1, 0.25, 0.5)
LAYOUT = Layout(Crew(2, 2), 2, cores=2)


def plan_of(kind: str, layers: int) -> Plan:
    model = MODELS[kind](WIDTH, HIDDEN, layers, CLASSES, dropout=0.5)
    train, evaluate = (trace(model, WIDTH, training=training) for training in (True, False))
    options = Options(pricing=Pricing(ENGINES["local"]), eval_every=0)
    return compile_plan(train, evaluate, LossSpec("classification", CLASSES, 1e5), REDDIT, options).plan


def whole(plan: Plan) -> Uses:
    """Steps that have all columns in memory as a whole, and the edges."""
    found = pass_uses(plan, plan.train, REDDIT, LAYOUT)
    uses = []
    for step, use in zip(plan.train, found.uses, strict=True):
        edges = {f"edges{' reversed' * step.reverse}"} if isinstance(step, PropagateStep) else set()
        uses.append(MemoryUse.of(use.reads | edges, use.makes))
    size = EDGE_BYTES * REDDIT.edges
    return Uses(uses, {**found.sizes, "edges": size, "edges reversed": size})


def in_parts(plan: Plan) -> Uses:
    return pass_uses(plan, plan.train, REDDIT, LAYOUT)


def rows(kind: str, layers: int) -> list[str]:
    plan, lines = plan_of(kind, layers), []
    for name, form in (("whole", whole), ("parts", in_parts)):
        uses = form(plan)
        read = {column for use in uses.uses for column in use.reads | use.makes}
        least = max(uses.needed(number, ()) for number in range(len(uses.uses)))
        for share in SHARES:
            capacity = int(least + share * uses.size(read))
            start = time.process_time()
            ours = least_moved(uses, capacity)
            seconds = time.process_time() - start
            recent, nothing = hold_recent(uses, capacity), hold_nothing(uses)
            assert ours is not None  # the least fits
            assert recent is not None
            lines.append(
                f"| {kind} | {layers} | {name} | {len(uses.uses)} | {capacity / 1e9:.2f} | {_bytes(nothing)} | {_bytes(recent)} "
                f"| {_bytes(ours)} | {_times(recent, ours)} | {_times(nothing, ours)} | {1000 * seconds:.0f} |"
            )
    return lines


def _bytes(holding: Holding) -> str:
    return f"{holding.read_bytes / 1e9:.2f}, {holding.moved_bytes / 1e9:.2f}"


def _times(other: Holding, ours: Holding) -> str:
    """How many times as much another holding reads, and how many times as much it moves."""
    read = other.read_bytes / ours.read_bytes if ours.read_bytes else float("inf")
    moved = other.moved_bytes / ours.moved_bytes if ours.moved_bytes else float("inf")
    return f"{read:.2f}, {moved:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS, help="default: benchmarks/results/columns.md")
    options = parser.parse_args()
    lines = [
        "# Columns in memory and in files",
        "",
        f"`python benchmarks/columns.py` on {machine()}.",
        "",
        f"{REDDIT.vertices:,} vertices, {REDDIT.edges:,} edges, {WIDTH} features, {CLASSES} classes, layers of {HIDDEN}; "
        "one training pass, simulated. Bytes in GB: those that are read, and those that are read or stored. Capacity: the least "
        f"with which a pass runs, and shares of {', '.join(f'{share:.0%}' for share in SHARES)} of all columns on top of it.",
        "",
        "| model | layers | steps work on | steps | capacity | streaming | LRU | planned | LRU / planned "
        "| streaming / planned | ms to plan |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(line for kind, layers in CASES for line in rows(kind, layers)),
        "",
    ]
    options.out.write_text("\n".join(lines))
    print(options.out.read_text())


if __name__ == "__main__":
    main()
