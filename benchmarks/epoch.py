"""Seconds per epoch of a two-layer GCN: PyG (two ways), Lotan local, Lotan on Spark rows (general and pushed-down plan).

    make bench                                   all graphs; writes benchmarks/results/epoch.md
    make bench ARGS="--graphs cora --epochs 5"   fewer

Each measurement runs in a process of its own, one after the other, with torch's default threads, the same model, weights
drawn alike, dropout on, no evaluation. What counts is the median over epochs after the warm-up. Memory is the peak of the
resident sets, sampled. Bytes are those of the whole run divided by its epochs: what is sent once weighs in.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apart import run_apart, write_table

MORE = 5  # times as many epochs where one takes milliseconds
WARM_UP = 2  # epochs that do not count: compilation, first allocation, static columns on their way
RESULTS = Path(__file__).parent / "results" / "epoch.md"
MEBI = 1 << 20

GRAPHS = {  # name: hidden channels
    "cora": 16,
    "coauthor_cs": 64,
    "generated": 64,
}
STAND_INS = {  # for a graph that is not on this machine: vertices, edges, width, classes
    "cora": (2708, 10556, 1433, 7),
    "coauthor_cs": (18333, 163788, 6805, 15),
    "generated": (20000, 200000, 128, 16),
}
LOTAN = {  # contestant: settings of the Trainer
    "lotan local": {"engine": "local"},
    "lotan rows, general": {"engine": "rows", "plan": "general"},
    "lotan rows, pushed down": {"engine": "rows", "plan": "auto"},
}
PYG = {"pyg edge_index": "edge_index", "pyg torch CSR": "csr"}
IN_MEMORY = {*PYG, "lotan local"}


def read_graph(name: str) -> tuple[Any, str]:
    """The graph and where it is from."""
    import lotan

    try:
        return lotan.Graph.read(name), "as published"
    except lotan.GraphError:
        vertices, edges, width, classes = STAND_INS[name]
        return lotan.datasets.generate(vertices, edges, width, classes), "generated"


def measure(graph_name: str, contestant: str, epochs: int) -> dict[str, Any]:
    """Train one contestant in this process."""
    graph, source = read_graph(graph_name)
    known = graph.statistics
    channels = (known.width, GRAPHS[graph_name], 2, graph.labels.outputs)
    run = measure_pyg if contestant in PYG else measure_lotan
    shape = {"source": source, "vertices": known.vertices, "edges": known.edges, "width": known.width}
    measured = epochs * MORE if contestant in IN_MEMORY else epochs
    return {**run(graph, channels, contestant, measured + WARM_UP), "graph": {**shape, "classes": channels[-1]}}


def measure_lotan(graph: Any, channels: tuple[int, ...], contestant: str, epochs: int) -> dict[str, Any]:
    import torch

    import lotan

    torch.manual_seed(0)
    model = lotan.nn.GCN(*channels, dropout=0.5)
    adam = lotan.Adam(lr=0.01, weight_decay=5e-4)
    settings = LOTAN[contestant]
    run = lotan.Trainer(model, graph, optimizer=adam, epochs=epochs, eval_every=0, progress=False, **settings).fit()
    return {
        "seconds": [entry["train_seconds"] for entry in run.history[WARM_UP:]],
        "memory": run.report["peak_memory_bytes"],
        "bytes": {name: count / epochs for name, count in run.report["bytes"].items()},
    }


def measure_pyg(graph: Any, channels: tuple[int, ...], contestant: str, epochs: int) -> dict[str, Any]:
    from lotan.memory.watch import MemoryWatch

    with MemoryWatch() as watch:
        step = pyg_step(graph, channels, PYG[contestant])
        seconds = [timed(step) for _ in range(epochs)]
    return {"seconds": seconds[WARM_UP:], "memory": watch.peak, "bytes": {}}


def pyg_step(graph: Any, channels: tuple[int, ...], adjacency: str) -> Callable[[], None]:
    """One epoch of PyG's GCN, its normalisation computed once (cached)."""
    from torch_geometric.nn import GCN

    form = transposed_csr if adjacency == "csr" else lambda edges, _: edges
    return training_step(graph, form, lambda: GCN(*channels, dropout=0.5, cached=True))


def training_step(graph: Any, form: Callable[[Any, int], Any], make: Callable[[], Any]) -> Callable[[], None]:
    """One epoch of a PyG model on a graph.

    Args:
        graph: a lotan.Graph.
        form: of [2, edges] and the number of vertices, what the model takes for edges.
        make: makes the model.
    """
    import torch

    arrays = graph.arrays()
    features, label = torch.from_numpy(arrays.features), torch.from_numpy(arrays.label)
    training = torch.from_numpy(arrays.split == 0) & (label >= 0)
    edges = form(torch.stack([torch.from_numpy(arrays.src), torch.from_numpy(arrays.dst)]).long(), len(features))
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    def step() -> None:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(features, edges)[training], label[training])
        loss.backward()
        optimizer.step()

    return step


def transposed_csr(edges: Any, vertices: int) -> Any:
    """The adjacency whose row of a vertex has its in-edges; parallel edges add up."""
    import torch

    ones = torch.ones(edges.shape[1])
    return torch.sparse_coo_tensor(edges.flip(0), ones, (vertices, vertices)).coalesce().to_sparse_csr()


def timed(step: Callable[[], None]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def measure_apart(graph: str, contestant: str, epochs: int) -> dict[str, Any]:
    """`measure` in a fresh process."""
    words = ["--one", graph, contestant, "--epochs", str(epochs)]
    submit = os.environ.get("PYSPARK_SUBMIT_ARGS", "--driver-memory 8g pyspark-shell")
    return run_apart(__file__, words, f"{contestant} on {graph}", {**os.environ, "PYSPARK_SUBMIT_ARGS": submit})


def row(contestant: str, measured: dict[str, Any], reference: dict[str, float]) -> str:
    seconds = statistics.median(measured["seconds"])
    ratios = [f"{seconds / reference[name]:.2f}" if name in reference else "-" for name in PYG]
    memory = [f"{measured['memory'][key] / MEBI:,.0f}" for key in ("driver", "jvm", "workers")]
    counts = [measured["bytes"].get(key) for key in ("messenger_sent", "messenger_received", "shuffle_written")]
    moved = ["-" if count is None else f"{count / MEBI:,.2f}" for count in counts]
    return "| " + " | ".join([contestant, f"{seconds:.4f}", *ratios, *memory, *moved]) + " |"


def table(graph: str, measured: dict[str, dict[str, Any]]) -> list[str]:
    """The Markdown of one graph."""
    shape = next(iter(measured.values()))["graph"]
    reference = {name: statistics.median(measured[name]["seconds"]) for name in PYG if name in measured}
    counts = f"{shape['vertices']:,} vertices, {shape['edges']:,} edges, {shape['width']:,} features"
    return [
        f"## {graph} ({shape['source']}): {counts}, {shape['classes']} classes, hidden {GRAPHS[graph]}",
        "",
        "| | s / epoch | ÷ PyG edge_index | ÷ PyG CSR | driver MiB | JVM MiB | workers MiB "
        "| sent MiB / epoch | received MiB / epoch | shuffled MiB / epoch |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *[row(name, result, reference) for name, result in measured.items()],
        "",
    ]


def machine() -> str:
    """One line: what this ran on."""
    import psutil
    import pyspark
    import torch

    model = "unknown processor"
    cpu = Path("/proc/cpuinfo")
    for line in cpu.read_text().splitlines() if cpu.exists() else ():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = psutil.virtual_memory().total / (1 << 30)
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, Spark {pyspark.__version__}"
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, {platform.system()}, {versions}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--contestants", nargs="+", choices=[*PYG, *LOTAN], default=[*PYG, *LOTAN])
    parser.add_argument(
        "--epochs",
        type=int,
        default=8,
        help="measured epochs on rows, after the warm-up; in memory, five times as many (default: 8)",
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="the table (default: benchmarks/results/epoch.md)")
    parser.add_argument("--one", nargs=2, metavar=("GRAPH", "CONTESTANT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one, options.epochs)))
        return
    command = shlex.join(["python", "benchmarks/epoch.py", *sys.argv[1:]])
    lines = ["# Seconds per epoch, two-layer GCN", "", f"`{command}` on {machine()}.", "", *__doc__.split("\n\n")[-1:]]
    for graph in options.graphs:
        measured = {}
        for contestant in options.contestants:
            print(f"{graph}: {contestant}", file=sys.stderr, flush=True)
            measured[contestant] = measure_apart(graph, contestant, options.epochs)
        lines += table(graph, measured)
        print("\n".join(table(graph, measured)), flush=True)
    write_table(options.out, lines)


if __name__ == "__main__":
    main()
