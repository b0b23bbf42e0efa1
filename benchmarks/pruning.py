"""What an epoch costs on the vertices that the loss depends on alone, and on all of them.

    python benchmarks/pruning.py                                writes benchmarks/results/pruning.md
    python benchmarks/pruning.py --graphs cora --engines local  fewer

Three graphs with planted classes: one with the sizes of Cora and its 140 training vertices, under a GCN 1433-16-7; one of
100,000 vertices and 1,000,000 edges, of which 2,000 vertices are trained on, under a GCN 64-32-32-10 and a GAT 64-32-10; one
with the sizes of ogbn-arxiv and its 54 % of training vertices, under a GCN 128-256-256-40; dropout 0.5, Adam. An epoch is its
training pass; the first ones do not count. With the rule and without it, each in a process of its own, take turns, so that a
disturbance meets both. `rows` is how many rows of vertices and edges the steps of an epoch are estimated to hand on, and
`setup` the seconds to the first epoch, which finding levels and ordering vertices are part of.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from apart import run_apart, write_table
from epoch import machine

RESULTS = Path(__file__).parent / "results" / "pruning.md"
WARM_UP = 3  # epochs that do not count
EVERY = ("local", "blocks", "rows")
GRAPHS: dict[str, dict[str, Any]] = {  # its sizes, training vertices (None: as drawn); the model; epochs; on which engines
    "cora": {"sizes": (2_708, 10_556, 1_433, 7), "training": 140, "kind": "GCN", "hidden": 16, "layers": 2,
             "epochs": 60, "engines": EVERY},
    "few labels": {"sizes": (100_000, 1_000_000, 64, 10), "training": 2_000, "kind": "GCN", "hidden": 32, "layers": 3,
                   "epochs": 8, "engines": EVERY},
    "few labels, GAT": {"sizes": (100_000, 1_000_000, 64, 10), "training": 2_000, "kind": "GAT", "hidden": 32,
                        "layers": 2, "epochs": 8, "engines": ("local", "blocks")},
    "arxiv": {"sizes": (169_343, 2_400_000, 128, 40), "training": None, "kind": "GCN", "hidden": 256, "layers": 3,
              "epochs": 4, "engines": ("local", "blocks")},
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {  # engine: settings of the Trainer
    "local": {"engine": "local"},
    "blocks": {"engine": "blocks", "master": "local[2]"},
    "rows": {"engine": "rows", "master": "local[2]"},
}
RULE = "prune_vertices"


def write_graph(name: str, folder: str) -> None:
    """The graph, with as many training vertices as it is to have."""
    import lotan
    from lotan.exploring.calibration import trained_on

    graph = lotan.datasets.generate(*GRAPHS[name]["sizes"], seed=0)
    training = GRAPHS[name]["training"]
    (graph if training is None else trained_on(graph, training)).save(folder)


def measure(name: str, engine: str, pruned: bool, folder: str) -> dict[str, Any]:
    """Train in this process."""
    import torch

    import lotan

    shape, (_, _, width, classes) = GRAPHS[name], GRAPHS[name]["sizes"]
    torch.manual_seed(0)
    kind = getattr(lotan.nn, shape["kind"])
    model = kind(width, shape["hidden"], shape["layers"], classes, dropout=0.5)
    common = {"optimizer": lotan.Adam(lr=0.01), "eval_every": 0, "progress": False, **SETTINGS[engine]}
    disable = [] if pruned else [RULE]
    trainer = lotan.Trainer(
        model, lotan.Graph.read(folder), epochs=shape["epochs"] + WARM_UP, disable=disable, **common
    )
    planned, run = trainer.plan.planned, trainer.fit()
    return {
        "seconds": [entry["train_seconds"] for entry in run.history][WARM_UP:],
        "setup": run.report["setup_seconds"],
        "rows": sum(step.rows(planned.statistics) for step in planned.plan.train),
        "loss": run.history[-1]["loss"],
    }


def table(found: dict[tuple[str, str], dict[bool, list[dict[str, Any]]]]) -> list[str]:
    """The Markdown."""
    lines = ["| graph | engine | | s / epoch, least | median | without ÷ with | rows | setup, s | loss |",
             "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for (name, engine), turns in found.items():
        seconds = {pruned: [s for one in runs for s in one["seconds"]] for pruned, runs in turns.items()}
        medians = {pruned: statistics.median(all_of) for pruned, all_of in seconds.items()}
        for pruned, runs in turns.items():
            ratio = f"{medians[False] / medians[True]:.2f}" if pruned else ""
            figures = f"{min(seconds[pruned]):.4f} | {medians[pruned]:.4f} | {ratio} | {runs[0]['rows']:,}"
            setup = statistics.median(one["setup"] for one in runs)
            what = "with it" if pruned else f"without {RULE}"
            lines.append(f"| {name} | {engine} | {what} | {figures} | {setup:.1f} | {runs[-1]['loss']:.5f} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--engines", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--turns", type=int, default=2, help="processes with the rule, and as many without it")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the table (default: benchmarks/results/pruning.md)")
    parser.add_argument("--one", nargs=4, metavar=("GRAPH", "ENGINE", "PRUNED", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, engine, pruned, folder = options.one
        print(json.dumps(measure(name, engine, pruned == "True", folder)))
        return
    found: dict[tuple[str, str], dict[bool, list[dict[str, Any]]]] = {}
    for name in options.graphs:
        with tempfile.TemporaryDirectory(prefix="lotan-pruning-") as folder:
            write_graph(name, folder)
            for engine in (one for one in options.engines if one in GRAPHS[name]["engines"]):
                turns = found[name, engine] = {True: [], False: []}
                for pruned in [True, False] * options.turns:
                    words = ["--one", name, engine, str(pruned), folder]
                    turns[pruned].append(run_apart(__file__, words, f"{name} on {engine}"))
                print(*table(found), sep="\n", flush=True)
    command = shlex.join(["python", "benchmarks/pruning.py", *sys.argv[1:]])
    text = ["# Only the vertices that the loss depends on", "", f"`{command}` on {machine()}.", ""]
    write_table(options.out, [*text, *__doc__.split("\n\n")[-1:], *table(found)])


if __name__ == "__main__":
    main()
