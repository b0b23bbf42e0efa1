"""Models of a grid trained together: against PyG and Lotan one after the other, and by their number.

    python benchmarks/batching.py                            writes benchmarks/results/batching.md
    python benchmarks/batching.py --graphs cora              fewer
    python benchmarks/batching.py --vertices 20000 --edges 200000 --graphs arxiv --epochs 3   smaller

Eight GCNs, {lr 0.01, 0.005} x {Adam, SGD} x {dropout 0.3, 0.5}: two layers on Cora and CoauthorCS, as in epoch.py; three,
128-256-256-40, on the graph of arxiv.py. PyG trains them one after the other in one process, on the adjacency as torch's CSR,
which is its fastest form, with its normalisation cached, and of features as its loaders give them, all numbers; Lotan's plan
leaves out the zeros of CoauthorCS, of which 99 % are (`--disable hold_sparse` would not). Lotan trains them one after the other,
by a Trainer each, and as one batch. An
epoch of all is the median epoch of each model or batch, summed; no epoch evaluates. "Whole" is wall time from the graph in
memory, and modules imported, to the last weights of the last model, planning and setting up included. Then 1, 10, 20 and 40
GCNs of the same kind with other seeds and learning rates, as one batch, divided by the first; on blocks, the first two counts.

Each measurement runs in a process of its own, with torch's default threads; they take turns, so that a disturbance meets all.
The first epochs, in which memory is fresh and PyG computes what it caches, do not count for a median. Memory is the peak of
the whole job, the graph included, sampled; a page that processes share counts once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import statistics
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from apart import run_apart, write_table
from epoch import GRAPHS, MEBI, machine, read_graph, transposed_csr

WARM_UP = 2  # epochs that do not count
RESULTS = Path(__file__).parent / "results" / "batching.md"
RATES, OPTIMIZERS, DROPOUTS = (0.01, 0.005), ("Adam", "SGD"), (0.3, 0.5)
COUNTS = (1, 10, 20, 40)
ARXIV = "arxiv"
WIDTH, CLASSES = 128, 40  # of its stand-in
SHAPES = {**{name: (hidden, 2) for name, hidden in GRAPHS.items()}, ARXIV: (256, 3)}  # hidden channels, layers
PYG, ALONE, TOGETHER = "PyG, one by one", "one by one", "together"
ENGINES = ("local", "blocks")
Models = list[tuple[float, str, float, int]]
"""Learning rate, optimizer, dropout and seed of each."""


def eight() -> Models:
    return [(*settings, 0) for settings in itertools.product(RATES, OPTIMIZERS, DROPOUTS)]


def alike(count: int) -> Models:
    return [(0.01 * 0.95**number, "Adam", 0.5, number) for number in range(count)]


def graph_of(name: str, folder: str) -> Any:
    import lotan

    return lotan.Graph.read(folder) if name == ARXIV else read_graph(name)[0]


def measure(graph_name: str, contestant: str, count: int, folder: str, epochs: int) -> dict[str, Any]:
    """Train one contestant's models in this process."""
    from lotan.memory.watch import MemoryWatch

    graph = graph_of(graph_name, folder)
    known, models = graph.statistics, alike(count) if count else eight()
    hidden, layers = SHAPES[graph_name]
    channels = (known.width, hidden, layers, graph.labels.outputs)
    kind, _, engine = contestant.partition(" on ")
    train, needed = {
        PYG: (train_pyg, "torch_geometric.nn"),
        ALONE: (train_alone, "lotan.training.trainer"),
        TOGETHER: (train_together, "lotan.batch.model_batch"),
    }[kind]
    import_module(needed)
    with MemoryWatch() as watch:
        started = time.perf_counter()
        seconds = train(graph, channels, models, epochs + WARM_UP, engine)
        whole = time.perf_counter() - started
    shape = {"vertices": known.vertices, "edges": known.edges, "width": known.width}
    return {"seconds": seconds, "whole": whole, "memory": watch.peak, "graph": shape}


def median(epochs: list[float]) -> float:
    return statistics.median(epochs[WARM_UP:])


def train_pyg(graph: Any, channels: tuple[int, ...], models: Models, epochs: int, _: str) -> float:
    """An epoch of all, by PyG."""
    import torch
    from torch_geometric.nn import GCN

    arrays = graph.arrays()
    features, label = torch.from_numpy(arrays.features), torch.from_numpy(arrays.label)
    training = torch.from_numpy(arrays.split == 0) & (label >= 0)
    edges = torch.stack([torch.from_numpy(arrays.src), torch.from_numpy(arrays.dst)]).long()
    adjacency = transposed_csr(edges, len(features))
    found = 0.0
    for rate, optimizer_name, dropout, seed in models:
        torch.manual_seed(seed)
        model = GCN(*channels, dropout=dropout, cached=True)
        optimizer = getattr(torch.optim, optimizer_name)(model.parameters(), lr=rate, weight_decay=5e-4)
        seconds = []
        for _epoch in range(epochs):
            started = time.perf_counter()
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(features, adjacency)[training], label[training])
            loss.backward()
            optimizer.step()
            seconds.append(time.perf_counter() - started)
        found += median(seconds)
    return found


def made(channels: tuple[int, ...], settings: tuple[float, str, float, int]) -> tuple[Any, Any]:
    """A model and its optimizer."""
    import torch

    import lotan

    rate, optimizer, dropout, seed = settings
    torch.manual_seed(seed)
    model = lotan.nn.GCN(*channels, dropout=dropout)
    return model, getattr(lotan, optimizer)(lr=rate, weight_decay=5e-4)


def common(engine: str) -> dict[str, Any]:
    """Settings of every run."""
    master = {"master": "local[2]"} if engine == "blocks" else {}
    return {"engine": engine, "eval_every": 0, "progress": False, **master}


def train_alone(graph: Any, channels: tuple[int, ...], models: Models, epochs: int, engine: str) -> float:
    """An epoch of all, by a Trainer each."""
    import lotan

    found = 0.0
    for settings in models:
        model, optimizer = made(channels, settings)
        options = {"optimizer": optimizer, "epochs": epochs, "seed": settings[-1], **common(engine)}
        run = lotan.Trainer(model, graph, **options).fit()
        found += median([entry["train_seconds"] for entry in run.history])
    return found


def train_together(graph: Any, channels: tuple[int, ...], models: Models, epochs: int, engine: str) -> float:
    """An epoch of all, as one batch; where memory divides it, of each part."""
    from lotan.batch.members import Member
    from lotan.batch.model_batch import ModelBatch

    members = []
    for settings in models:
        model, optimizer = made(channels, settings)
        members.append(Member(model, optimizer, seed=settings[-1], epochs=epochs))
    with ModelBatch(graph, members, **common(engine)) as batch:
        batch.train()
        firsts = [batch.states[numbers[0]] for numbers in batch.batches]
        return sum(median([entry["train_seconds"] for entry in state.history]) for state in firsts)


def measure_apart(graph: str, contestant: str, count: int, folder: str, epochs: int) -> dict[str, Any]:
    """`measure` in a fresh process."""
    words = ["--one", graph, contestant, str(count), folder, "--epochs", str(epochs)]
    return run_apart(__file__, words, f"{contestant} on {graph}")


def rounds(graph: str, jobs: dict[str, tuple[str, int]], folder: str, options: argparse.Namespace) -> dict[str, Any]:
    """Of several jobs, by turns: the least seconds and the greatest memory of all rounds."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in jobs}
    for number in range(options.rounds):
        for name, (contestant, count) in jobs.items():
            print(f"{graph}, round {number + 1}: {name}", file=sys.stderr, flush=True)
            found[name].append(measure_apart(graph, contestant, count, folder, options.epochs))
    return {name: summed(several) for name, several in found.items()}


def summed(several: list[dict[str, Any]]) -> dict[str, Any]:
    memory = max(sum(one["memory"].values()) for one in several)
    least = {name: min(one[name] for one in several) for name in ("seconds", "whole")}
    return {**least, "memory": memory, "graph": several[0]["graph"]}


def table(heads: str, measured: dict[str, Any], reference: str | None) -> list[str]:
    """The Markdown of some jobs, beside one of them."""
    lines = [f"| {heads} | s / epoch of all | ÷ | whole s | ÷ | peak MiB | ÷ |", "|---|---|---|---|---|---|---|"]
    for name, one in measured.items():
        cells = [name]
        for key, unit, form in (("seconds", 1, ".4f"), ("whole", 1, ".2f"), ("memory", MEBI, ",.0f")):
            ratio = "-" if reference not in measured else f"{one[key] / measured[reference][key]:.2f}"
            cells += [format(one[key] / unit, form), ratio]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def measure_graph(graph: str, folder: str, options: argparse.Namespace) -> list[str]:
    """Both tables of one graph, as Markdown."""
    engines = [engine for engine in options.engines if engine == "local" or graph == ARXIV]
    names = [PYG, *(f"{kind} on {engine}" for engine in engines for kind in (ALONE, TOGETHER))]
    measured = rounds(graph, {name: (name, 0) for name in names}, folder, options)
    shape = next(iter(measured.values()))["graph"]
    hidden, layers = SHAPES[graph]
    sizes = f"{shape['vertices']:,} vertices, {shape['edges']:,} edges, {shape['width']:,} features"
    lines = [f"## {graph}: {sizes}, {layers} layers, hidden {hidden}", ""]
    lines += table("8 models", measured, PYG)
    for engine in options.engines if graph != ARXIV else ():
        counts = options.counts[: None if engine == "local" else 2]
        jobs = {f"{count}": (f"{TOGETHER} on {engine}", count) for count in counts}
        lines += table(f"models together on {engine}", rounds(graph, jobs, folder, options), f"{counts[0]}")
    print("\n".join(lines), flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    graphs = ["cora", "coauthor_cs", ARXIV]
    parser.add_argument("--graphs", nargs="+", choices=SHAPES, default=graphs)
    parser.add_argument(
        "--engines", nargs="+", choices=ENGINES, default=list(ENGINES), help="blocks: not beside PyG but on arxiv"
    )
    parser.add_argument("--counts", nargs="+", type=int, default=list(COUNTS), metavar="N", help="models together")
    parser.add_argument("--epochs", type=int, default=10, help="measured epochs of a process, after the warm-up")
    parser.add_argument("--rounds", type=int, default=2, help="processes of each contestant")
    parser.add_argument("--vertices", type=int, default=169_343, help="of the graph called arxiv")
    parser.add_argument("--edges", type=int, default=2_400_000)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the table (default: benchmarks/results/batching.md)")
    parser.add_argument("--one", nargs=4, metavar=("GRAPH", "CONTESTANT", "COUNT", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        graph, contestant, count, folder = options.one
        print(json.dumps(measure(graph, contestant, int(count), folder, options.epochs)))
        return
    command = shlex.join(["python", "benchmarks/batching.py", *sys.argv[1:]])
    lines = ["# Models of a grid together", "", f"`{command}` on {machine()}.", "", *__doc__.split("\n\n")[-2:]]
    with tempfile.TemporaryDirectory(prefix="lotan-batching-") as folder:
        if ARXIV in options.graphs:
            write_graph(options, folder)
        for graph in options.graphs:
            lines += measure_graph(graph, folder, options)
    write_table(options.out, lines)


def write_graph(options: argparse.Namespace, folder: str) -> None:
    import lotan

    lotan.datasets.generate(options.vertices, options.edges, WIDTH, CLASSES, seed=0).save(folder)


if __name__ == "__main__":
    main()
