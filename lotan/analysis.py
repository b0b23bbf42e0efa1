"""What a plan costs in fact, beside what was estimated: its passes are run, and no weight changes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import torch

from lotan.engines.base import Engine, Pass, run
from lotan.engines.opening import open_engine
from lotan.job import Job
from lotan.memory_limit import MemoryLimit
from lotan.memory_watch import MemoryWatch
from lotan.settings import TrainerConfig
from planner.explain import duration, size

EPOCHS = 3  # that count
OFF = 2.0  # times, from which on an estimate is marked


@dataclass(frozen=True)
class Measure:
    """One quantity, both ways."""

    what: str
    unit: str  # "seconds" or "bytes"
    estimated: float
    measured: float

    @property
    def times(self) -> float:
        """How far the two are apart: the greater by the smaller."""
        low, high = sorted((self.estimated, self.measured))
        if low > 0:
            return high / low
        return inf if high > 0 else 1.0


def analyze(job: Job, config: TrainerConfig, weights: Mapping[str, torch.Tensor]) -> list[Measure]:
    """Run the training pass, warm, and an evaluation.

    Args:
        job: what would be trained.
        config: see there.
        weights: parameters and buffers by name.

    Raises:
        EngineError: the engine cannot be started, or a stage failed.
    """
    plan, cost = job.plan, job.planned.cost
    with MemoryWatch() as watch, closing(open_engine(job.needs(config), job.graph, config)) as engine:
        engine.load(job.graph, plan)
        warm = _seconds(engine, job, plan.train, 1, EPOCHS, weights, config)  # of fresh memory, and of compilers
        before = engine.bytes_moved()
        epochs = _seconds(engine, job, plan.train, 1 + len(warm), EPOCHS, weights, config)
        moved = {name: (count - before[name]) / EPOCHS for name, count in engine.bytes_moved().items()}
        evaluation = _seconds(engine, job, plan.evaluate, 1, 1 + EPOCHS, weights, config)[1:]
        both = plan.train_and_evaluate  # there may be no such pass
        in_one = _seconds(engine, job, both, 1, 1 + EPOCHS, weights, config)[1:] if both else []
    peak = MemoryLimit.of(config).peak(job.needs(config))
    trained, evaluated = cost(plan.train), cost(plan.evaluate)
    found = [
        Measure("training pass", "seconds", trained.seconds, statistics.median(epochs)),
        Measure("evaluation", "seconds", evaluated.seconds, statistics.median(evaluation)),
        *([Measure("both in one", "seconds", cost(both).seconds, statistics.median(in_one))] if both else []),
        Measure("peak memory", "bytes", peak, sum(watch.peak.values())),
    ]
    if job.engine.name == "local":  # where nothing moves
        return found
    piped, shuffled = (sum(getattr(step, name) for step in trained.steps) for name in ("piped_bytes", "shuffled_bytes"))
    return [
        *found,
        Measure("piped, a training pass", "bytes", piped, moved["messenger_sent"] + moved["messenger_received"]),
        Measure("shuffled, a training pass", "bytes", shuffled, moved["shuffle_written"]),
    ]


def _seconds(
    engine: Engine,
    job: Job,
    steps: Sequence[Any],
    first: int,
    epochs: int,
    weights: Mapping[str, torch.Tensor],
    config: TrainerConfig,
) -> list[float]:
    found = []
    for epoch in range(first, first + epochs):
        started = time.perf_counter()
        run(engine, job.plan, steps, Pass(epoch, weights, config.seed))
        found.append(time.perf_counter() - started)
    return found


def analysis_lines(found: Sequence[Measure]) -> list[str]:
    """A table, as a section of what explain prints; `!` marks what is off."""
    lines = ["== measured ==", f"{'':<28}{'estimated':>12}{'measured':>12}"]
    for one in found:
        mark = f"  ! {one.times:.1f} times" if one.times > OFF else ""
        lines.append(f"{one.what:<28}{_said(one.unit, one.estimated):>12}{_said(one.unit, one.measured):>12}{mark}")
    return lines


def _said(unit: str, value: float) -> str:
    return duration(value) if unit == "seconds" else size(round(value))


def analysis_data(found: Sequence[Measure]) -> list[dict[str, Any]]:
    """The same as plain data."""
    return [{**asdict(one), "off": one.times > OFF} for one in found]
