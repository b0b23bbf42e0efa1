"""Where the seconds of an epoch on rows go: planning, jobs, and the processors' time of each kind of process.

    python benchmarks/where.py                           writes benchmarks/results/where.md
    python benchmarks/where.py --graphs cora --epochs 5   fewer

The graphs and the model are those of benchmarks/epoch.py. Figures are means over training passes after the warm-up. "No job"
is the time in which Spark ran none: Catalyst plans the pass, parameters go to the Router, sums come back, the optimizer
steps. The processors' time is of the driver's Python, Spark's JVM, the Python processes that Spark starts for mapInArrow, and
DL workers with their Router.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
from epoch import GRAPHS, LOTAN, WARM_UP, machine, read_graph

import lotan
from lotan.memory.watch import process_groups
from lotan.training import epochs as loop

RESULTS = Path(__file__).parent / "results" / "where.md"
PLANS = [name for name, settings in LOTAN.items() if settings["engine"] == "rows"]
COLUMNS = ("epoch", "no job", "jobs", "tasks", "driver", "JVM", "Spark's Python", "workers")


@dataclass(frozen=True)
class Reading:
    """What has been spent until now, in seconds, and the tasks that have ended."""

    wall: float
    jobs: float
    tasks: int
    driver: float
    jvm: float
    python: float
    workers: float

    @classmethod
    def take(cls) -> Reading:
        """Now."""
        from pyspark import SparkContext

        store = SparkContext._active_spark_context._jsc.sc().statusStore()
        jobs = store.jobsList(None)
        spans = [span(jobs.apply(place)) for place in range(jobs.length())]
        executors = store.executorList(False)
        totals = [executors.apply(place) for place in range(executors.length())]
        return cls(
            time.perf_counter(),
            covered(spans),
            sum(one.completedTasks() for one in totals),
            **processor_seconds(),
        )

    def since(self, before: Reading) -> dict[str, float]:
        """By the names of `COLUMNS`."""
        spent = {name: getattr(self, name) - getattr(before, name) for name in self.__dataclass_fields__}
        figures = [spent["wall"], spent["wall"] - spent["jobs"], *list(spent.values())[1:]]
        return dict(zip(COLUMNS, figures, strict=True))


def span(job: Any) -> tuple[float, float]:
    """When a job started and ended, in seconds."""
    start, end = job.submissionTime(), job.completionTime()
    begun = start.get().getTime() / 1000
    return begun, end.get().getTime() / 1000 if end.isDefined() else time.time()


def covered(spans: list[tuple[float, float]]) -> float:
    """How long at least one of the spans was under way."""
    total, reached = 0.0, 0.0
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def processor_seconds() -> dict[str, float]:
    """Of each kind of process."""
    groups = process_groups()
    java = {process for process in groups["jvm"] if process.name().startswith("java")}
    kinds = {"driver": groups["driver"], "jvm": java, "python": groups["jvm"] - java, "workers": groups["workers"]}
    return {kind: sum(map(processor_time, processes)) for kind, processes in kinds.items()}


def processor_time(process: psutil.Process) -> float:
    try:
        spent = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(spent.user + spent.system)


def measure(graph_name: str, contestant: str, epochs: int) -> dict[str, float]:
    """Means over the epochs."""
    import torch

    graph, _ = read_graph(graph_name)
    torch.manual_seed(0)
    model = lotan.nn.GCN(graph.statistics.width, GRAPHS[graph_name], 2, graph.labels.outputs, dropout=0.5)
    passes: list[dict[str, float]] = []

    def watched(run: Callable[..., Any]) -> Callable[..., Any]:
        def one(*arguments: Any) -> Any:
            before = Reading.take()
            outcome = run(*arguments)
            passes.append(Reading.take().since(before))
            return outcome

        return one

    settings = {**LOTAN[contestant], "epochs": epochs + WARM_UP, "eval_every": 0, "progress": False}
    with mock.patch.object(loop, "run", watched(loop.run)):
        lotan.Trainer(model, graph, optimizer=lotan.Adam(lr=0.01), **settings).fit()
    counted = passes[WARM_UP:-1]  # the last pass evaluates
    return {name: statistics.mean(one[name] for one in counted) for name in COLUMNS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=["cora", "generated"])
    parser.add_argument("--epochs", type=int, default=8, help="measured epochs, after the warm-up (default: 8)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the table (default: benchmarks/results/where.md)")
    options = parser.parse_args()
    command = shlex.join(["python", "benchmarks/where.py", *sys.argv[1:]])
    lines = ["# Where an epoch on rows goes", "", f"`{command}` on {machine()}.", "", *__doc__.split("\n\n")[-1:]]
    lines += ["| graph | plan | " + " | ".join(f"{name}{'' if name == 'tasks' else ', s'}" for name in COLUMNS) + " |"]
    lines += ["|" + "---|" * (len(COLUMNS) + 2)]
    for graph in options.graphs:
        for contestant in PLANS:
            found = measure(graph, contestant, options.epochs)
            cells = [f"{found[name]:.0f}" if name == "tasks" else f"{found[name]:.2f}" for name in COLUMNS]
            lines.append("| " + " | ".join([graph, contestant.removeprefix("lotan rows, "), *cells]) + " |")
            print(lines[-1], flush=True)
    options.out.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
