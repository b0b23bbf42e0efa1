"""One epoch of arxiv-shaped trainings: PyG's fastest path for each model, and Lotan.

    python benchmarks/arxiv.py                                   writes benchmarks/results/arxiv.md
    python benchmarks/arxiv.py --models gcn --engines blocks     fewer
    python benchmarks/arxiv.py --vertices 20000 --edges 200000   smaller

A degree-skewed graph with planted classes, in Parquet; models of three layers, 128-256-256-40, dropout 0.5, Adam: GCN,
GraphSAGE with means, GIN whose MLPs have two maps, GAT with four heads. Each contestant runs in a process of its own, with
torch's default threads and the heap that Lotan gives Spark; they take turns, so that a disturbance meets all. PyG gets the
adjacency in the form that is fastest for the model (a plain edge_index is slower for each); the one with the least median is
what the others are divided by. An epoch is forward, backward and the optimizer's step: the evaluation pass is left out. The first
epochs, in which memory is fresh and PyG computes what it caches, do not count. Memory is the peak of the whole job, the
graph included, sampled; a page that processes share counts once.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apart import run_apart, write_table
from epoch import MEBI, machine, timed, training_step, transposed_csr

WARM_UP = 2  # epochs that do not count
RESULTS = Path(__file__).parent / "results" / "arxiv.md"
WIDTH, HIDDEN, LAYERS, CLASSES = 128, 256, 3, 40
CSR, SORTED = "pyg torch CSR", "pyg EdgeIndex"
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"name": "GCN", "peers": (CSR,), "arguments": {}, "pyg": {"cached": True}},
    "sage": {"name": "GraphSAGE", "peers": (CSR,), "arguments": {}, "pyg": {}},
    "gin": {"name": "GIN", "peers": (CSR,), "arguments": {}, "pyg": {}},
    "gat": {"name": "GAT", "peers": (CSR, SORTED), "arguments": {"heads": 4}, "pyg": {}},
}
SETTINGS: dict[str, dict[str, Any]] = {  # engine: settings of the Trainer
    "local": {"engine": "local"},
    "blocks": {"engine": "blocks", "master": "local[2]"},
}
Measured = tuple[list[float], dict[str, int], dict[str, float]]
"""Seconds of each epoch, peak bytes by kind of process, bytes that moved in an epoch by how."""


def write_graph(options: argparse.Namespace, folder: str) -> None:
    import lotan

    lotan.datasets.generate(options.vertices, options.edges, WIDTH, CLASSES, seed=options.seed).save(folder)


def measure(model: str, contestant: str, folder: str, epochs: int) -> dict[str, Any]:
    """Train one contestant in this process."""
    run = measure_lotan if contestant in SETTINGS else measure_pyg
    seconds, memory, moved = run(MODELS[model], contestant, folder, epochs + WARM_UP)
    return {"seconds": seconds[WARM_UP:], "memory": memory, "moved": moved}


def measure_pyg(model: dict[str, Any], contestant: str, folder: str, epochs: int) -> Measured:
    from lotan.memory.watch import MemoryWatch

    with MemoryWatch() as watch:
        step = pyg_step(model, contestant, folder)
        seconds = [timed(step) for _ in range(epochs)]
    return seconds, watch.peak, {}


def pyg_step(model: dict[str, Any], contestant: str, folder: str) -> Callable[[], None]:
    """One epoch of PyG's model."""
    import torch_geometric.nn

    import lotan

    make = getattr(torch_geometric.nn, model["name"])
    arguments = {"dropout": 0.5, **model["arguments"], **model["pyg"]}
    form = transposed_csr if contestant == CSR else sorted_edges
    return training_step(lotan.Graph.read(folder), form, lambda: make(WIDTH, HIDDEN, LAYERS, CLASSES, **arguments))


def sorted_edges(edges: Any, vertices: int) -> Any:
    """PyG's own index, sorted by destination, with all that it derives."""
    from torch_geometric import EdgeIndex

    size = vertices, vertices
    by_destination = EdgeIndex(edges, sparse_size=size).sort_by("col").values.as_tensor()
    return EdgeIndex(by_destination, sparse_size=size, sort_order="col").fill_cache_()


def measure_lotan(model: dict[str, Any], contestant: str, folder: str, epochs: int) -> Measured:
    import torch

    import lotan

    graph = lotan.Graph.read(folder)
    torch.manual_seed(0)
    make = getattr(lotan.nn, model["name"])
    network = make(WIDTH, HIDDEN, LAYERS, CLASSES, dropout=0.5, **model["arguments"])
    adam = lotan.Adam(lr=0.01, weight_decay=5e-4)
    settings = SETTINGS[contestant]
    run = lotan.Trainer(network, graph, optimizer=adam, epochs=epochs, eval_every=0, progress=False, **settings).fit()
    moved = {**run.report["transport"], "shuffled": run.report["bytes"]["shuffle_written"]}
    seconds = [entry["train_seconds"] for entry in run.history]
    return seconds, run.report["peak_memory_bytes"], {name: count / epochs for name, count in moved.items()}


def measure_apart(model: str, contestant: str, folder: str, epochs: int) -> dict[str, Any]:
    """`measure` in a fresh process."""
    words = ["--one", model, contestant, folder, "--epochs", str(epochs)]
    return run_apart(__file__, words, f"{model} by {contestant}")


def table(measured: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The Markdown of one model: of all rounds the least and the median epoch, and the greatest memory."""
    seconds = {name: [second for one in rounds for second in one["seconds"]] for name, rounds in measured.items()}
    memory = {name: max(sum(one["memory"].values()) for one in rounds) for name, rounds in measured.items()}
    peers = [name for name in seconds if name not in SETTINGS]
    peer = min(peers, key=lambda name: statistics.median(seconds[name]), default=None)
    lines = [
        "| | s / epoch, least | median | greatest | least ÷ PyG | median ÷ PyG | peak MiB | ÷ PyG "
        "| driver, JVM, workers MiB | MiB / epoch shared, inline, shuffled |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in seconds.items():
        figures = [min(found), statistics.median(found), max(found)]
        ratios = ["-", "-", "-"]
        if peer is not None:
            known = min(seconds[peer]), statistics.median(seconds[peer])
            ratios = [f"{figures[i] / known[i]:.2f}" for i in (0, 1)] + [f"{memory[name] / memory[peer]:.2f}"]
        last = measured[name][-1]
        places = ", ".join(f"{last['memory'][key] / MEBI:,.0f}" for key in ("driver", "jvm", "workers"))
        moved = ", ".join(f"{count / MEBI:,.0f}" for count in last["moved"].values()) or "-"
        parts = [*(f"{figure:.3f}" for figure in figures), *ratios[:2], f"{memory[name] / MEBI:,.0f}", ratios[2]]
        lines.append("| " + " | ".join([name, *parts, places, moved]) + " |")
    return [*lines, ""]


def measure_model(model: str, folder: str, options: argparse.Namespace) -> list[str]:
    """All rounds of one model, as Markdown."""
    peers = [] if options.no_peers else MODELS[model]["peers"]
    measured: dict[str, list[dict[str, Any]]] = {name: [] for name in (*peers, *options.engines)}
    for number in range(options.rounds):
        for name, rounds in measured.items():
            print(f"{model}, round {number + 1}: {name}", file=sys.stderr, flush=True)
            rounds.append(measure_apart(model, name, folder, options.epochs))
    found = [f"## {MODELS[model]['name']}", "", *table(measured)]
    print("\n".join(found), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--engines", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--no-peers", action="store_true", help="leave PyG out")
    parser.add_argument("--epochs", type=int, default=4, help="measured epochs of a process, after the warm-up")
    parser.add_argument("--rounds", type=int, default=2, help="processes of each contestant")
    parser.add_argument("--vertices", type=int, default=169_343)
    parser.add_argument("--edges", type=int, default=2_400_000)
    parser.add_argument("--seed", type=int, default=0, help="of the graph")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the table (default: benchmarks/results/arxiv.md)")
    parser.add_argument("--one", nargs=3, metavar=("MODEL", "CONTESTANT", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one, options.epochs)))
        return
    command = shlex.join(["python", "benchmarks/arxiv.py", *sys.argv[1:]])
    shape = f"{options.vertices:,} vertices, {options.edges:,} edges"
    text = [f"# One epoch, 128-256-256-40, {shape}", "", f"`{command}` on {machine()}.", ""]
    lines = [*text, *__doc__.split("\n\n")[-1:]]
    with tempfile.TemporaryDirectory(prefix="lotan-arxiv-") as folder:
        write_graph(options, folder)
        for model in options.models:
            lines += measure_model(model, folder, options)
    write_table(options.out, lines)


if __name__ == "__main__":
    main()
