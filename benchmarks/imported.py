"""Seconds per epoch of models of PyG that are imported, against the same models of lotan.nn.

    python benchmarks/imported.py                           on local; prints the table
    python benchmarks/imported.py --engine blocks           the same on Spark
    python benchmarks/imported.py --vertices 5000 --epochs 5 --rounds 2

Both models have the same shapes and train on the same generated graph, in turns in one process. What counts is the
least of all epochs of all rounds, but for the first two of each: other work on the machine only adds to it. The medians
stand beside it.
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

import torch
import torch_geometric.nn

import lotan
import lotan.nn

MODELS = ("GCN", "GraphSAGE", "GIN", "GAT")
WARM_UP = 2  # epochs that do not count: compilation, first allocation, static columns on their way
WIDTH, HIDDEN, CLASSES = 64, 64, 10


def seconds(library: Any, name: str, graph: lotan.Graph, options: argparse.Namespace) -> list[float]:
    """The seconds of each epoch that counts, of one run."""
    torch.manual_seed(0)
    model = getattr(library, name)(WIDTH, HIDDEN, 2, CLASSES, dropout=0.5)
    settings = {"epochs": options.epochs + WARM_UP, "eval_every": 0, "progress": False, "engine": options.engine}
    run = lotan.Trainer(model, graph, optimizer=lotan.Adam(lr=0.01), **settings).fit()
    return [entry["train_seconds"] for entry in run.history[WARM_UP:]]


def main() -> None:
    """Measure the models, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", default="local", help="local, blocks or rows (default: local)")
    parser.add_argument("--vertices", type=int, default=20_000, help="of the generated graph (default: 20000)")
    parser.add_argument("--epochs", type=int, default=10, help="that count, of each run (default: 10)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each model (default: 3)")
    options = parser.parse_args()
    graph = lotan.datasets.generate(options.vertices, 10 * options.vertices, WIDTH, CLASSES)
    print(
        f"{options.engine}: {graph.statistics.vertices:,} vertices, {graph.statistics.edges:,} edges, {WIDTH} features\n"
    )
    print(
        "| model | imported, s / epoch | lotan.nn, s / epoch | imported / lotan.nn | of medians |\n|---|---|---|---|---|"
    )
    for name in MODELS:
        theirs: list[float] = []
        ours: list[float] = []
        for _ in range(options.rounds):
            theirs += seconds(torch_geometric.nn, name, graph, options)
            ours += seconds(lotan.nn, name, graph, options)
        least, medians = min(theirs) / min(ours), median(theirs) / median(ours)
        print(f"| {name} | {min(theirs):.4f} | {min(ours):.4f} | {least:.2f} | {medians:.2f} |", flush=True)


if __name__ == "__main__":
    main()
