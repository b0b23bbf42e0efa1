"""Seconds per epoch of a GCN of three layers with BatchNorm: PyG with a CSR adjacency, Lotan on `local` and on `blocks`.

    python benchmarks/norms.py                                  169,343 vertices; writes benchmarks/results/norms.md
    python benchmarks/norms.py --vertices 60000 --rounds 2      a smaller graph, fewer rounds

The contestants take turns in one process, with dropout on and without evaluation. Each row has the median of all epochs of all
rounds but for the first two of each, and the least, because other work on the machine only adds to an epoch.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from statistics import median
from typing import Any

import torch
from apart import write_table
from epoch import machine, timed, training_step, transposed_csr

import lotan

WARM_UP = 2  # epochs that do not count: compilation, first allocation, static columns on their way
WIDTH, HIDDEN, LAYERS, CLASSES = 128, 256, 3, 40
EDGES = 14  # for each vertex, as on ogbn-arxiv with both directions
RESULTS = Path(__file__).parent / "results" / "norms.md"
PYG, WITHOUT = "pyg torch CSR", "lotan blocks, without norm"
CONTESTANTS = (PYG, "lotan local", "lotan blocks", WITHOUT)


def pyg(graph: lotan.Graph, epochs: int) -> list[float]:
    """The seconds of each epoch of PyG's model, whose normalisation of edges is computed once."""
    from torch_geometric.nn import GCN

    def make() -> Any:
        return GCN(WIDTH, HIDDEN, LAYERS, CLASSES, dropout=0.5, norm="batch_norm", cached=True)

    step = training_step(graph, transposed_csr, make)
    return [timed(step) for _ in range(epochs)]


def ours(graph: lotan.Graph, engine: str, norm: str | None, epochs: int) -> list[float]:
    """The seconds of each epoch of the same model of lotan.nn."""
    torch.manual_seed(0)
    model = lotan.nn.GCN(WIDTH, HIDDEN, LAYERS, CLASSES, dropout=0.5, norm=norm)
    adam = lotan.Adam(lr=0.01, weight_decay=5e-4)
    settings = {"epochs": epochs, "eval_every": 0, "progress": False, "engine": engine}
    run = lotan.Trainer(model, graph, optimizer=adam, **settings).fit()
    return [entry["train_seconds"] for entry in run.history]


def measure(graph: lotan.Graph, contestant: str, epochs: int) -> list[float]:
    """The seconds of the epochs that count."""
    if contestant == PYG:
        return pyg(graph, epochs + WARM_UP)[WARM_UP:]
    engine, norm = contestant.split(",")[0].split()[1], None if contestant == WITHOUT else "batch_norm"
    return ours(graph, engine, norm, epochs + WARM_UP)[WARM_UP:]


def main() -> None:
    """Measure the contestants in turns, and print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vertices", type=int, default=169_343, help="of the generated graph (default: 169343)")
    parser.add_argument("--epochs", type=int, default=5, help="that count, of each turn (default: 5)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contestant (default: 3)")
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=CONTESTANTS)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the table (default: benchmarks/results/norms.md)")
    options = parser.parse_args()
    graph = lotan.datasets.generate(options.vertices, EDGES * options.vertices, WIDTH, CLASSES)
    seconds: dict[str, list[float]] = {name: [] for name in options.contestants}
    for _ in range(options.rounds):
        for name in options.contestants:
            seconds[name] += measure(graph, name, options.epochs)
    base = seconds.get(PYG)
    lines = [
        "# An epoch with BatchNorm",
        "",
        f"`{shlex.join(['python', 'benchmarks/norms.py', *sys.argv[1:]])}` on {machine()}.",
        "",
        __doc__.split("\n\n")[-1].strip().replace("\n", " "),
        "",
        f"GCN {WIDTH}-{HIDDEN}-{HIDDEN}-{CLASSES}, {graph.statistics.vertices:,} vertices, "
        f"{graph.statistics.edges:,} edges.",
        "",
        "| | median, s / epoch | least, s / epoch | median ÷ PyG's | least ÷ PyG's |",
        "|---|---|---|---|---|",
    ]
    for name, found in seconds.items():
        ratios = [f"{of(found) / of(base):.2f}" if base else "-" for of in (median, min)]
        lines.append(f"| {name} | {median(found):.3f} | {min(found):.3f} | {' | '.join(ratios)} |")
    print("\n".join(lines), flush=True)
    write_table(options.out, lines)


if __name__ == "__main__":
    main()
