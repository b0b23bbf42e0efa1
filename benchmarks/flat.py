"""Whether a long run stays as it began: the memory of each of its processes, and the seconds of an epoch.

    python benchmarks/flat.py                  200 epochs; writes benchmarks/results/flat.md
    python benchmarks/flat.py --epochs 1000     longer

A GCN of width 64 trains on blocks on 20,000 vertices and 280,000 edges, in a Spark session that was there before and stays.
Memory is each process's own share of what is in memory (PSS), which is read after each training pass; "Java's heap" is what
is in use right after a garbage collection, of which there is one at the end of each quarter. Figures are medians over a quarter
of the epochs, the first being without the epochs of the warm-up. Below the table: what the run has left behind.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
from epoch import MEBI, machine

import lotan
from lotan.datasets.planted import PlantedGraph
from lotan.hosts.spark_session import SparkSettings, open_spark
from lotan.memory.watch import process_groups
from lotan.training import epochs as loop

RESULTS = Path(__file__).parent / "results" / "flat.md"
WARM_UP = 20  # epochs in which Java compiles
QUARTERS = 4
SHARED_MEMORY = Path("/dev/shm")
KINDS = {"router_process": "router", "lotan.worker": "worker", "pyspark.daemon": "Spark's Python"}
HEAP = "Java's heap"


class Watch:
    """Notes memory and time while `Trainer` walks through its passes: stands in for `lotan.training.passes.run`.

    Args:
        java: the gateway to Spark's JVM.
        epochs: of the run.
    """

    def __init__(self, java: Any, epochs: int) -> None:
        self.java, self.run = java, loop.run
        self.ends = {quarter * epochs // QUARTERS for quarter in range(1, QUARTERS + 1)}
        self.seconds: list[float] = []
        self.memory: dict[str, list[float]] = defaultdict(list)

    def __call__(self, engine: Any, plan: Any, steps: Any, a_pass: Any) -> Any:
        """Walk through a pass."""
        if steps is not plan.train:
            return self.run(engine, plan, steps, a_pass)
        started = time.perf_counter()
        outcome = self.run(engine, plan, steps, a_pass)
        self.seconds.append(time.perf_counter() - started)
        for name, size in shares().items():
            self.memory[name].append(size)
        if len(self.seconds) in self.ends:
            self.memory[HEAP].append(self._heap())
        return outcome

    def _heap(self) -> float:
        runtime = self.java.java.lang.Runtime.getRuntime()
        self.java.java.lang.System.gc()
        return (runtime.totalMemory() - runtime.freeMemory()) / MEBI


def shares() -> dict[str, float]:
    """PSS of every process of the job, in MiB, by what it is."""
    groups, found, numbers = process_groups(), {}, defaultdict[str, int](int)
    for key, processes in groups.items():
        for process in sorted(processes, key=lambda one: one.pid):
            try:
                line, size = " ".join(process.cmdline()), process.memory_full_info().pss
            except psutil.Error:
                continue
            kind = next((name for part, name in KINDS.items() if part in line), {"jvm": "Spark's JVM"}.get(key, key))
            numbers[kind] += 1
            found[kind if numbers[kind] == 1 else f"{kind} {numbers[kind]}"] = size / MEBI
    return found


def measure(epochs: int, session: Any) -> Watch:
    """Train in this process."""
    watch = Watch(session._jvm, epochs)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "graph"
        lotan.datasets.write_parquet(PlantedGraph(20_000, 280_000, 64, 8, seed=0), place)
        model = lotan.nn.GCN(64, 64, 2, 8, dropout=0.5)
        settings = {"engine": "blocks", "epochs": epochs, "eval_every": 10, "workers": 2, "progress": False}
        with mock.patch.object(loop, "run", watch):
            lotan.Trainer(model, lotan.Graph.read(place), optimizer=lotan.Adam(lr=0.01), **settings).fit()
    return watch


def table(watch: Watch) -> list[str]:
    """The Markdown of the first and the last quarter, side by side."""
    lines = ["| | first quarter | last quarter | last ÷ first |", "|---|---|---|---|"]
    for name, values, form in [
        ("epoch, s", watch.seconds, "{:.3f}"),
        *((f"{name}, MiB", watch.memory[name], "{:,.0f}") for name in sorted(watch.memory)),
    ]:
        size = len(values) // QUARTERS
        skipped = 0 if len(values) == QUARTERS else min(WARM_UP, size // 2)
        first, last = statistics.median(values[skipped:size]), statistics.median(values[-size:])
        lines.append(f"| {name} | {form.format(first)} | {form.format(last)} | {last / first:.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the table (default: benchmarks/results/flat.md)")
    options = parser.parse_args()
    command = shlex.join(["python", "benchmarks/flat.py", *sys.argv[1:]])
    opened = open_spark(SparkSettings("local[2]"))
    try:
        before = set(SHARED_MEMORY.iterdir())
        watch = measure(options.epochs, opened.session)
        kept = opened.session.sparkContext._jsc.getPersistentRDDs().size()
        files = [path.name for path in SHARED_MEMORY.iterdir() if path not in before]
    finally:
        opened.close()
    left = f"Left behind: {kept} persisted RDDs, {len(files)} files in {SHARED_MEMORY}."
    text = ["# A long run", "", f"`{command}` on {machine()}.", "", *__doc__.split("\n\n")[-1:]]
    text += [*table(watch), "", left, ""]
    options.out.write_text("\n".join(text))
    print("\n".join(text[5:]))


if __name__ == "__main__":
    main()
