"""From the plan that ships neighbourhoods to the one that is chosen: what each step takes off an epoch.

    python benchmarks/ablation.py                                   writes benchmarks/results/ablation.md
    python benchmarks/ablation.py --vertices 20000 --edges 280000   smaller

A degree-skewed graph with planted classes, GCN 128-256-256-40, dropout 0.5, Adam, on `local[2]` with two workers. Each line
has all that the lines above it have. Each is measured in a process of its own; an epoch is its training pass, and the first
ones do not count.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from apart import run_apart, write_table
from epoch import MEBI, machine

RESULTS = Path(__file__).parent / "results" / "ablation.md"
WARM_UP = 1
GENERAL = {"engine": "rows", "plan": "general"}
IN_PLACE = {"disable": ["commute_linear", "hoist_invariant", "prune_vertices"]}
STEPS: dict[
    str, tuple[dict[str, Any], bool]
] = {  # what is added: all settings of the Trainer, whether frames are inline
    "rows, general plan, a gradient per edge, inline frames": ({**GENERAL, "rgb": False}, True),
    "+ gradients summed before they cross (RGB)": (GENERAL, True),
    "+ push-down": ({"engine": "rows", **IN_PLACE}, True),
    "+ shared memory": ({"engine": "rows", **IN_PLACE}, False),
    "+ blocks": ({"engine": "blocks", **IN_PLACE}, False),
    "+ linear maps where fewer numbers are summed": (
        {"engine": "blocks", "disable": ["hoist_invariant", "prune_vertices"]},
        False,
    ),
    "+ what no epoch changes computed once": ({"engine": "blocks", "disable": ["prune_vertices"]}, False),
    "+ the vertices that the loss depends on alone": ({"engine": "blocks"}, False),
    "the engine that auto takes for files that fit": ({}, False),
}


def inline_frames() -> AbstractContextManager[Any]:
    """No Dealer takes shared memory."""
    from messenger.settings import Settings

    make = Settings.__init__

    def without(self: Settings, *given: Any, **named: Any) -> None:
        make(self, *given, **{"shared_bytes": 0, **named})

    return mock.patch.object(Settings, "__init__", without)


def measure(step: str, folder: str, epochs: int) -> dict[str, Any]:
    """Train in this process."""
    import torch

    import lotan

    settings, inline = STEPS[step]
    torch.manual_seed(0)
    model, adam = lotan.nn.GCN(128, 256, 3, 40, dropout=0.5), lotan.Adam(lr=0.01, weight_decay=5e-4)
    common = {"optimizer": adam, "eval_every": 0, "progress": False, "master": "local[2]", "workers": 2}
    with inline_frames() if inline else nullcontext():
        run = lotan.Trainer(model, lotan.Graph.read(folder), epochs=epochs + WARM_UP, **common, **settings).fit()
    return {
        "seconds": [entry["train_seconds"] for entry in run.history][WARM_UP:],
        "loss": run.history[-1]["loss"],
        "memory": sum(run.report["peak_memory_bytes"].values()),
        "bytes": sum(run.report["bytes"].values()) / (epochs + WARM_UP),
    }


def measure_apart(step: str, folder: str, options: argparse.Namespace) -> dict[str, Any]:
    """`measure` in a fresh process."""
    words = ["--one", step, folder, "--epochs", str(options.epochs)]
    return run_apart(__file__, words, repr(step))


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """The Markdown."""
    lines = [
        "| | s / epoch, least | median | first line ÷ this | MiB moved / epoch | peak MiB | loss |",
        "|---|---|---|---|---|---|---|",
    ]
    first = statistics.median(next(iter(found.values()))["seconds"])
    for step, one in found.items():
        median = statistics.median(one["seconds"])
        figures = f"{min(one['seconds']):.2f} | {median:.2f} | {first / median:.1f}"
        rest = f"{one['bytes'] / MEBI:,.0f} | {one['memory'] / MEBI:,.0f} | {one['loss']:.5f}"
        lines.append(f"| {step} | {figures} | {rest} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2, help="measured epochs of a process, after the warm-up")
    parser.add_argument("--vertices", type=int, default=169_343)
    parser.add_argument("--edges", type=int, default=2_400_000)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the table (default: benchmarks/results/ablation.md)")
    parser.add_argument("--one", nargs=2, metavar=("STEP", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one, options.epochs)))
        return
    import lotan

    found = {}
    with tempfile.TemporaryDirectory(prefix="lotan-ablation-") as folder:
        lotan.datasets.generate(options.vertices, options.edges, width=128, classes=40, seed=0).save(folder)
        for step in STEPS:
            print(step, file=sys.stderr, flush=True)
            found[step] = measure_apart(step, folder, options)
            print(*table(found), sep="\n", flush=True)
    command = shlex.join(["python", "benchmarks/ablation.py", *sys.argv[1:]])
    shape = f"{options.vertices:,} vertices, {options.edges:,} edges"
    text = [f"# Step by step: GCN 128-256-256-40, {shape}", "", f"`{command}` on {machine()}.", ""]
    lines = [*text, *__doc__.split("\n\n")[-1:], *table(found)]
    write_table(options.out, lines)


if __name__ == "__main__":
    main()
