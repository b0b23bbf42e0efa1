"""One epoch of an arxiv-shaped training: PyG with a torch CSR adjacency, and Lotan.

    python benchmarks/arxiv.py                                   writes benchmarks/results/arxiv.md
    python benchmarks/arxiv.py --engines local --epochs 3        fewer
    python benchmarks/arxiv.py --vertices 20000 --edges 200000   smaller

A degree-skewed graph with planted classes, GCN 128-256-256-40, dropout 0.5, Adam. Each contestant runs in a process of its own,
with torch's default threads; they take turns, so that a disturbance meets both. An epoch is forward, backward and the
optimizer's step: the evaluation pass is left out. The first epochs, in which memory is fresh and PyG computes what it
caches, do not count. Memory is the peak of the resident sets of the job's processes, the graph included, sampled.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from epoch import MEBI, machine, pyg_step, timed

WARM_UP = 2  # epochs that do not count
RESULTS = Path(__file__).parent / "results" / "arxiv.md"
PEER = "pyg torch CSR"
HIDDEN, LAYERS = 256, 3
SETTINGS: dict[str, dict[str, Any]] = {  # engine: settings of the Trainer
    "local": {"engine": "local"},
    "blocks": {"engine": "blocks", "master": "local[2]"},
}
SUBMIT = "--driver-memory 2g pyspark-shell"  # of Spark, unless PYSPARK_SUBMIT_ARGS says otherwise
LIMIT_SECONDS = 3600


def make_graph(options: argparse.Namespace) -> Any:
    import lotan

    return lotan.datasets.generate(options.vertices, options.edges, width=128, classes=40, seed=options.seed)


def measure(contestant: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train one contestant in this process."""
    graph = make_graph(options)
    channels = (graph.statistics.width, HIDDEN, LAYERS, graph.labels.outputs)
    run = measure_pyg if contestant == PEER else measure_lotan
    seconds, memory, moved = run(graph, channels, contestant, options.epochs + WARM_UP)
    return {"seconds": seconds[WARM_UP:], "memory": memory, "moved": moved}


Measured = tuple[list[float], dict[str, int], dict[str, float]]
"""Seconds of each epoch, peak bytes by kind of process, bytes that moved in an epoch by how."""


def measure_pyg(graph: Any, channels: tuple[int, ...], contestant: str, epochs: int) -> Measured:
    from lotan.memory_watch import MemoryWatch

    with MemoryWatch() as watch:
        step = pyg_step(graph, channels, "csr")
        seconds = [timed(step) for _ in range(epochs)]
    return seconds, watch.peak, {}


def measure_lotan(graph: Any, channels: tuple[int, ...], contestant: str, epochs: int) -> Measured:
    import torch

    import lotan

    torch.manual_seed(0)
    model, adam = lotan.nn.GCN(*channels, dropout=0.5), lotan.Adam(lr=0.01, weight_decay=5e-4)
    settings = SETTINGS[contestant]
    run = lotan.Trainer(model, graph, optimizer=adam, epochs=epochs, eval_every=0, progress=False, **settings).fit()
    moved = {**run.report["transport"], "shuffled": run.report["bytes"]["shuffle_written"]}
    seconds = [entry["train_seconds"] for entry in run.history]
    return seconds, run.report["peak_memory_bytes"], {name: count / epochs for name, count in moved.items()}


def measure_apart(contestant: str, options: argparse.Namespace) -> dict[str, Any]:
    """`measure` in a fresh process."""
    sizes = [f"--{name}={getattr(options, name)}" for name in ("vertices", "edges", "epochs", "seed")]
    words = [sys.executable, __file__, "--one", contestant, *sizes]
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": os.environ.get("PYSPARK_SUBMIT_ARGS", SUBMIT)}
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=LIMIT_SECONDS, env=environment)
    if done.returncode:
        raise SystemExit(f"{contestant} failed with status {done.returncode}; its error is above")
    return json.loads(done.stdout.splitlines()[-1])


def table(measured: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The Markdown: of all rounds the least and the median epoch, and the greatest memory."""
    seconds = {name: [second for one in rounds for second in one["seconds"]] for name, rounds in measured.items()}
    memory = {name: max(sum(one["memory"].values()) for one in rounds) for name, rounds in measured.items()}
    lines = [
        "| | s / epoch, least | median | greatest | least ÷ PyG | median ÷ PyG | peak MiB | ÷ PyG "
        "| driver, JVM, workers MiB | MiB / epoch shared, inline, shuffled |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in seconds.items():
        figures = [min(found), statistics.median(found), max(found)]
        ratios = [least / peer for least, peer in zip(figures, _peer(seconds), strict=False)]
        parts = [*(f"{figure:.3f}" for figure in figures), *(f"{ratio:.2f}" for ratio in ratios or ["-", "-"])]
        share = f"{memory[name] / memory[PEER]:.2f}" if PEER in memory else "-"
        last = measured[name][-1]
        places = ", ".join(f"{last['memory'][key] / MEBI:,.0f}" for key in ("driver", "jvm", "workers"))
        moved = ", ".join(f"{count / MEBI:,.0f}" for count in last["moved"].values()) or "-"
        lines.append("| " + " | ".join([name, *parts, f"{memory[name] / MEBI:,.0f}", share, places, moved]) + " |")
    return lines


def _peer(seconds: dict[str, list[float]]) -> list[float]:
    return [min(seconds[PEER]), statistics.median(seconds[PEER])] if PEER in seconds else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--engines", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--epochs", type=int, default=4, help="measured epochs of a process, after the warm-up")
    parser.add_argument("--rounds", type=int, default=2, help="processes of each contestant")
    parser.add_argument("--vertices", type=int, default=169_343)
    parser.add_argument("--edges", type=int, default=2_400_000)
    parser.add_argument("--seed", type=int, default=0, help="of the graph")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the table (default: benchmarks/results/arxiv.md)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options)))
        return
    measured: dict[str, list[dict[str, Any]]] = {PEER: [], **{name: [] for name in options.engines}}
    for number in range(options.rounds):
        for name, rounds in measured.items():
            print(f"round {number + 1}: {name}", file=sys.stderr, flush=True)
            rounds.append(measure_apart(name, options))
    command = shlex.join(["python", "benchmarks/arxiv.py", *sys.argv[1:]])
    shape = f"{options.vertices:,} vertices, {options.edges:,} edges"
    text = [f"# One epoch, GCN 128-256-256-40, {shape}", "", f"`{command}` on {machine()}.", ""]
    lines = [*text, *__doc__.split("\n\n")[-1:], *table(measured), ""]
    print("\n".join(lines))
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
