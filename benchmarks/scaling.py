"""How an epoch grows: with edges, depth and the width of what workers compute; and what it costs where there is little to do.

    python benchmarks/scaling.py                       all five; writes benchmarks/results/scaling.md
    python benchmarks/scaling.py fixed depth            some
    python benchmarks/scaling.py edges --engine rows    on another engine

Each measurement trains in a process of its own, on `local[2]` and two workers. An epoch is its training pass, the median over
epochs after the warm-up. "fixed": a GCN on a graph of Cora's size, 16 features; what each further layer adds. "edges": a GCN
32-32-8, 14 edges a vertex. "depth": a GCN of width 32 on 20,000 vertices and 280,000 edges, and how well a straight line
fits. "width": a GIN of two layers, 64 in and out, on 5,000 vertices and 5 million edges, whose MLPs have ever wider hidden
layers; the graph's part is the processors' time of Spark's tasks, by Spark's own count, which should not grow. "hub": a GCN
of width 64 on 1 million vertices and 2 million edges, half of which end in one vertex, or begin there; against the same graph
without it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from apart import run_apart, write_table
from epoch import MEBI, machine

RESULTS = Path(__file__).parent / "results" / "scaling.md"
WARM_UP = 3
MEGA = 1_000_000

Case = dict[str, Any]
"""vertices, edges, width (of features), classes, hub (the end at which one vertex has half of the edges), and of the model:
kind, hidden, layers."""


def fixed() -> Iterator[Case]:
    for layers in (2, 4, 6, 8):
        yield {
            "vertices": 2708,
            "edges": 10556,
            "width": 16,
            "classes": 7,
            "kind": "gcn",
            "hidden": 16,
            "layers": layers,
        }


def edges() -> Iterator[Case]:
    for millions in (1, 3, 10, 30):
        graph = {"vertices": millions * MEGA // 14, "edges": millions * MEGA, "width": 32, "classes": 8}
        yield {**graph, "kind": "gcn", "hidden": 32, "layers": 2}


def depth() -> Iterator[Case]:
    for layers in (4, 8, 16, 32):
        yield {
            "vertices": 20_000,
            "edges": 280_000,
            "width": 32,
            "classes": 8,
            "kind": "gcn",
            "hidden": 32,
            "layers": layers,
        }


def width() -> Iterator[Case]:
    for hidden in (128, 512, 2048, 8192, 32_768):
        yield {
            "vertices": 5000,
            "edges": 5_000_000,
            "width": 64,
            "classes": 64,
            "kind": "gin",
            "hidden": hidden,
            "layers": 2,
        }


def hub() -> Iterator[Case]:
    for end in ("none", "dst", "src"):
        graph = {"vertices": MEGA, "edges": 2 * MEGA, "width": 64, "classes": 64, "hub": end}
        yield {**graph, "kind": "gcn", "hidden": 64, "layers": 2}


TABLES = {"fixed": fixed, "edges": edges, "depth": depth, "width": width, "hub": hub}
VARIED = {"fixed": "layers", "edges": "edges", "depth": "layers", "width": "hidden", "hub": "hub"}


def measure(case: Case, engine: str, epochs: int) -> dict[str, Any]:
    """Train in this process. Seconds of each epoch, the JVM's processor seconds an epoch, and peak bytes."""
    import torch

    import lotan
    from lotan.datasets.planted import PlantedGraph
    from lotan.training import epochs as loop

    torch.manual_seed(0)
    tasks: list[float] = []

    def watched(engine: Any, plan: Any, steps: Any, a_pass: Any) -> Any:
        tasks.append(task_seconds())
        return run(engine, plan, steps, a_pass)

    run = loop.run
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(loop, "run", watched):
        place = Path(folder) / "graph"
        lotan.datasets.write_parquet(
            PlantedGraph(case["vertices"], case["edges"], case["width"], case["classes"], seed=0), place
        )
        add_hub(place / "edges.parquet", case.get("hub", "none"))
        job = lotan.Trainer(
            make_model(case),
            lotan.Graph.read(place),
            optimizer=lotan.Adam(lr=0.001),
            engine=engine,
            epochs=epochs + WARM_UP,
            eval_every=0,
            master="local[2]",
            workers=2,
            progress=False,
        )
        report = job.fit().report
    return {
        "seconds": [entry["train_seconds"] for entry in report["epochs"]][WARM_UP:],
        "tasks": float(np.mean(np.diff(tasks)[WARM_UP:])),  # passes but the last, which evaluates
        "memory": sum(report["peak_memory_bytes"].values()),
    }


def add_hub(edges: Path, end: str) -> None:
    """Has every second edge end, or begin, in the vertex 0."""
    if end == "none":
        return
    table = pq.read_table(edges)
    ids = table[end].to_numpy().copy()
    ids[::2] = 0
    pq.write_table(table.set_column(table.schema.get_field_index(end), end, pa.array(ids)), edges)


def task_seconds() -> float:
    """Processor seconds that Spark's tasks have taken so far: without compilers, collectors and what waits."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        return 0.0
    context, java = session.sparkContext._jsc.sc(), session.sparkContext._gateway
    context.listenerBus().waitUntilEmpty()
    empty = java.new_array(java.jvm.double, 0), java.jvm.java.util.ArrayList()
    stages = context.statusStore().stageList(None, False, False, *empty)
    return sum(stages.apply(place).executorCpuTime() for place in range(stages.length())) / 1e9


def make_model(case: Case) -> Any:
    import torch

    import lotan

    if case["kind"] == "gcn":
        return lotan.nn.GCN(case["width"], case["hidden"], case["layers"], case["classes"])
    channels, hidden = case["width"], case["hidden"]

    class Wide(torch.nn.Module):
        """Layers whose MLPs are wide, between columns that are not."""

        def __init__(self) -> None:
            super().__init__()
            mlps = [
                torch.nn.Sequential(
                    torch.nn.Linear(channels, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, channels)
                )
                for _ in range(case["layers"])
            ]
            self.convs = torch.nn.ModuleList(lotan.nn.GINConv(mlp) for mlp in mlps)

        def forward(self, x: Any, graph: Any) -> Any:
            for conv in self.convs:
                x = conv(x, graph).tanh()
            return x

    return Wide()


def measure_apart(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """`measure` in a fresh process."""
    words = ["--one", json.dumps(case), "--engine", options.engine]
    words += ["--epochs", str(options.epochs)]
    return run_apart(__file__, words, str(case))


def table(name: str, cases: list[Case], found: list[dict[str, Any]]) -> list[str]:
    """The Markdown of one table, and what it comes to."""
    varied = [case[VARIED[name]] for case in cases]
    seconds = [statistics.median(one["seconds"]) for one in found]
    tasks = [one["tasks"] for one in found]
    lines = [
        f"## {name}",
        "",
        f"| {VARIED[name]} | s / epoch | least | tasks' processor s | peak MiB |",
        "|---|---|---|---|---|",
    ]
    for value, median, one in zip(varied, seconds, found, strict=True):
        figures = f"{median:.3f} | {min(one['seconds']):.3f} | {one['tasks']:.3f} | {one['memory'] / MEBI:,.0f}"
        lines.append(f"| {value if isinstance(value, str) else format(value, ',')} | {figures} |")
    return [*lines, "", conclusion(name, varied, np.array(seconds), np.array(tasks)), ""]


def conclusion(name: str, varied: list[Any], seconds: np.ndarray, tasks: np.ndarray) -> str:
    if name == "hub":
        return f"Each ÷ the first: {', '.join(f'{one / seconds[0]:.2f}' for one in seconds)}."
    if name == "edges":
        each = seconds / np.array(varied) * 1e9
        return f"ns an edge: {', '.join(f'{one:.0f}' for one in each)}; most ÷ least: {each.max() / each.min():.2f}."
    if name == "width":
        return f"The tasks' processor seconds, each ÷ the first: {', '.join(f'{one / tasks[0]:.2f}' for one in tasks)}."
    slope, start = np.polyfit(varied, seconds, 1)
    fits = 1 - np.sum((seconds - slope * np.array(varied) - start) ** 2) / np.sum((seconds - seconds.mean()) ** 2)
    return f"A layer adds {slope * 1000:.0f} ms to {start * 1000:.0f} ms; R² of the line: {fits:.4f}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(TABLES), help=f"of {', '.join(TABLES)} (default: all)")
    parser.add_argument("--engine", default="blocks", choices=("blocks", "rows", "local"))
    parser.add_argument("--epochs", type=int, default=5, help="measured epochs, after the warm-up (default: 5)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file (default: benchmarks/results/scaling.md)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(json.loads(options.one), options.engine, options.epochs)))
        return
    command = shlex.join(["python", "benchmarks/scaling.py", *sys.argv[1:]])
    lines = ["# How an epoch grows", "", f"`{command}` on {machine()}.", "", *__doc__.split("\n\n")[-1:]]
    for name in options.tables:
        cases = list(TABLES[name]())
        found = []
        for case in cases:
            print(f"{name}: {case}", file=sys.stderr, flush=True)
            found.append(measure_apart(case, options))
        lines += table(name, cases, found)
        print("\n".join(table(name, cases, found)), flush=True)
    write_table(options.out, lines)


if __name__ == "__main__":
    main()
