"""How long `lotan train` takes from the command to its first epoch, and what of it each stage takes.

    python benchmarks/start.py        # writes benchmarks/results/start.md

A stage runs in a process of its own, which does all stages before it too: its own share is the difference. Processor seconds
are told beside wall time, for they stay nearly the same on a machine that has other work. Medians of several runs.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "start.md"
GRAPH = ["--graph", "digits", "--engine", "local", "--epochs", "1", "--eval-every", "0"]
STAGES = {
    "Python itself": "pass",
    "`import lotan`": "import lotan",
    "PyTorch": "import lotan, torch",
    "the Trainer and all that it needs": "import lotan, torch, lotan.training.trainer",
    "PyTorch's compiler, which tracing and optimizers load": (
        "import lotan, torch, lotan.training.trainer, lotan.settings.config as c; c.make_config({}); import torch._dynamo"
    ),
}
COMMAND = "the graph read, the model traced, the plan made: `lotan train`, one epoch included"
AS_BEFORE = "the same without `rare_collections` (lotan/cli/collecting.py)"
WITHOUT = "import lotan.cli.collecting as c; c.RARELY = 700\n"
TRAIN = f"from lotan.cli import main\nmain({['train', *GRAPH]!r})"


def seconds(script: str) -> tuple[float, float]:
    """Wall and processor seconds of a process that runs a script."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def medians(script: str, runs: int) -> tuple[float, float]:
    """The medians of both over several runs, after one that fills the caches of files."""
    seconds(script)
    wall, processor = zip(*(seconds(script) for _ in range(runs)), strict=True)
    return statistics.median(wall), statistics.median(processor)


def main() -> None:
    parser = argparse.ArgumentParser(description="measure what a start takes")
    parser.add_argument("--runs", type=int, default=5, help="of each stage (default: 5)")
    runs = parser.parse_args().runs
    load = os.getloadavg()[0]
    scripts = STAGES | {COMMAND: TRAIN, AS_BEFORE: WITHOUT + TRAIN}
    found = {name: medians(script, runs) for name, script in scripts.items()}
    lines = ["| up to and with | wall, s | processor, s |", "|---|---|---|"]
    lines += [f"| {name} | {wall:.2f} | {processor:.2f} |" for name, (wall, processor) in found.items()]
    head = "# What a start takes\n\n`python benchmarks/start.py`, the built-in graph on the local engine, "
    text = f"{head}medians of {runs} runs on {os.cpu_count()} cores, load average {load:.1f} before.\n"
    text += "Each line includes the lines above it, but for the last.\n\n"
    RESULTS.write_text(text + "\n".join(lines) + "\n")
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
