"""The measured cost of a plan beside the estimated one. Its passes are run, and no weight changes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import torch

from lotan.engines.base import Engine, Handle, Pass, run
from lotan.engines.observed import Extent
from lotan.engines.opening import open_engine
from lotan.memory.watch import MemoryWatch
from lotan.planning.job import Job
from lotan.settings.config import TrainerConfig
from planner.explain.sizes import PEAK_MEMORY, duration, quantity
from planner.explain.text import Measured, own_line, passes
from planner.printer import WIDTH, aligned, wrapped
from planner.steps.pipe import PipeStep
from planner.steps.step import Step

EPOCHS = 3  # measured epochs, unless another number is given
OFF = 2.0  # factor from which on an estimate is marked
NOTED = 0.05  # share of a pass that a step must be off by to be marked
ONE_JOB = "a pass is one Spark job, so its steps cannot be timed one by one"
UNLISTED = "the results of steps that are not listed stay inside Spark and are not counted; "
BESIDE = 43  # columns of a line for the measures of a step
TITLES = {"epoch": "training pass", "evaluation": "evaluation", "epoch_and_evaluation": "both in one"}
"""The titles of the passes that are run, by the names of their data."""


@dataclass(frozen=True)
class Measure:
    """One quantity, estimated and measured."""

    what: str
    unit: str  # "seconds", "bytes", "rows" or "swaps"
    estimated: float | None  # None: there is no estimate
    measured: float
    share: float | None = None  # of the seconds of training that the epochs took; None: of none

    @property
    def times(self) -> float:
        """The factor between the two values, at least 1."""
        if self.estimated is None:
            return 1.0
        low, high = sorted((self.estimated, self.measured))
        if low > 0:
            return high / low
        return inf if high > 0 else 1.0


@dataclass(frozen=True)
class Ran:
    """A pass as it was measured."""

    seconds: float
    steps: tuple[
        tuple[Measure, ...], ...
    ]  # for each step "rows", "bytes" or "piped_bytes", and "seconds", as far as known
    own: float | None = None  # seconds to begin and end the pass; None if steps have no seconds of their own


@dataclass(frozen=True)
class Analysis:
    """The estimates and measurements of a job."""

    job: Job
    totals: tuple[Measure, ...]
    passes: Mapping[str, Ran]  # the passes that the plan has, by the names of `TITLES`


def analyze(job: Job, config: TrainerConfig, weights: Mapping[str, torch.Tensor], epochs: int = EPOCHS) -> Analysis:
    """Run the training pass and an evaluation after a warm-up, and return the measurements.

    Args:
        job: The job that would be trained.
        config: The settings of the run.
        weights: The parameters and buffers by name.
        epochs: The number of measured runs of each pass; the median counts.

    Raises:
        EngineError: If the engine cannot be started, or a stage fails.
    """
    cost, there = job.planned.cost, passes(job.plan)
    walks = {name: there[name] for name in TITLES if there[name]}
    with MemoryWatch() as watch, closing(open_engine(job.needs(config), job.graph, config)) as engine:
        engine.load(job.graph, job.plan)
        if job.rows_in_spark:
            engine.keep_rows({name: weights[name] for name in job.train.learned})
        bench = _Bench(engine, job, weights, config.seed)
        bench.seconds(walks["epoch"], EPOCHS)  # seconds of fresh memory and of compilers do not count
        taken, moved = {}, {}
        for name, walk in walks.items():
            bench.seconds(walk, 1)  # then tensors that are sent once have been sent
            before = engine.bytes_moved()
            taken[name] = bench.seconds(walk, epochs)
            moved[name] = {what: (bytes - before[what]) / epochs for what, bytes in engine.bytes_moved().items()}
        # Steps come last, because an engine may stop running several at once.
        found = {name: Ran(statistics.median(taken[name]), *bench.steps(walks[name], epochs)) for name in walks}
    totals = [Measure(TITLES[name], "seconds", cost(walks[name]).seconds, ran.seconds) for name, ran in found.items()]
    totals.append(Measure(PEAK_MEMORY, "bytes", job.peak_bytes(config), sum(watch.peak.values())))
    totals += [one for name, walk in walks.items() for one in _moved(job, name, walk, moved[name])]
    return Analysis(job, tuple(totals), found)


def _moved(job: Job, name: str, steps: Sequence[Step], moved: Mapping[str, float]) -> list[Measure]:
    """Return the bytes that a pass has moved; on local, none."""
    if job.traits.in_process:
        return []
    cost = job.planned.cost(steps)
    # The shuffles of rows within one JVM belong to its seconds, and are not counted separately.
    counted = cost.moved("shuffled") if job.traits.counts_shuffles else None
    return [
        Measure(
            f"piped, {TITLES[name]}",
            "bytes",
            cost.moved("piped"),
            moved["messenger_sent"] + moved["messenger_received"],
        ),
        Measure(f"shuffled, {TITLES[name]}", "bytes", counted, moved["shuffle_written"]),
    ]


class _Bench:
    """An engine on which passes of a job are run, each with an epoch number of its own."""

    def __init__(self, engine: Engine, job: Job, weights: Mapping[str, torch.Tensor], seed: int) -> None:
        self._engine, self._job, self._weights, self._seed = engine, job, weights, seed
        self._epoch = 0

    def seconds(self, steps: Sequence[Step], count: int) -> list[float]:
        """Return the seconds of each of some runs."""
        found = []
        for _ in range(count):
            started = time.perf_counter()
            self._run(steps)
            found.append(time.perf_counter() - started)
        return found

    def steps(self, steps: Sequence[Step], count: int) -> tuple[tuple[tuple[Measure, ...], ...], float | None]:
        """Return the rows and bytes of each step, with median seconds if the engine runs steps one by one.

        The second value is the median seconds of the pass itself, or None.
        """
        one_by_one = self._engine.do_one_by_one()
        watches = []
        for _ in range(1 + count if one_by_one else 1):
            watches.append(_Watch(self._engine))
            self._run(steps, watches[-1])
            watches[-1].end()
        extents = list(watches[-1].extents)
        pipes = [number for number, step in enumerate(steps) if isinstance(step, PipeStep)]
        for number, piped in zip(pipes, self._engine.piped(), strict=False):
            extents[number] = piped
        bytes = "bytes" if one_by_one else "piped_bytes"
        cost = self._job.planned.cost(steps)
        plan, known = self._job.plan, self._job.planned.statistics
        found = []
        for number, (step, extent) in enumerate(zip(steps, extents, strict=True)):
            handed_on = step.bytes(known, plan) if one_by_one else cost.steps[number].piped_bytes
            measures = []
            if extent is not None:
                measures.append(Measure("rows", "rows", step.rows(known), extent.rows))
                measures.append(Measure(bytes, "bytes", handed_on, extent.bytes))
            if one_by_one:
                taken = statistics.median(watch.seconds[number] for watch in watches[1:])
                measures.append(Measure("seconds", "seconds", cost.steps[number].seconds, taken))
            found.append(tuple(measures))
        if not one_by_one:
            return tuple(found), None
        return tuple(found), statistics.median(watch.own for watch in watches[1:])

    def _run(self, steps: Sequence[Step], watch: _Watch | None = None) -> None:
        self._epoch += 1
        run(self._engine, self._job.plan, steps, Pass(self._epoch, self._weights, self._seed), watch=watch)


class _Watch:
    """Records the seconds and extent of each step of a pass, and the seconds of the pass itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.seconds: list[float] = []
        self.extents: list[Extent | None] = []
        self.own = 0.0  # seconds
        self._since = time.perf_counter()

    def __call__(self, step: Step | None, held: Mapping[str, Handle]) -> None:
        if step is None:
            return self.end()
        self.seconds.append(time.perf_counter() - self._since)
        self.extents.append(self._engine.extent(step, {name: held[name] for name in step.makes}))
        self._since = time.perf_counter()
        return None

    def end(self) -> None:
        """Count the seconds since the last step, or before the first one, as the pass's own."""
        self.own += time.perf_counter() - self._since
        self._since = time.perf_counter()


# --- words and data -------------------------------------------------------------------------------------------------


def analysis_lines(found: Analysis) -> list[str]:
    """Return the tables of an analysis as sections of explain; `!` marks estimates that are off."""
    lines = total_lines(found.totals)
    for name, ran in found.passes.items():
        told = _step_lines(found.job, passes(found.job.plan)[name], ran)
        lines += ["", f"== measured: {TITLES[name]}, step by step ==", *told]
    return lines


def total_lines(totals: Sequence[Measure]) -> list[str]:
    """Return the table of whole passes."""
    lines = ["== measured ==", f"{'':<28}{'estimated':>12}{'measured':>12}"]
    for one in totals:
        off = "none was expected" if one.times == inf else f"{one.times:.1f} times"
        mark = f"  ! {off}" if one.times > OFF else "" if one.share is None else f"  {one.share:.0%} of training"
        estimated = "-" if one.estimated is None else quantity(one.what, one.unit, one.estimated)
        lines.append(f"{one.what:<28}{estimated:>12}{quantity(one.what, one.unit, one.measured):>12}{mark}")
    return lines


def _step_lines(job: Job, steps: Sequence[Step], ran: Ran) -> list[str]:
    """Return the lines of the measured steps: rows, bytes and seconds, and the factor of each marked estimate."""
    lines = []
    for number, (step, measures) in enumerate(zip(steps, ran.steps, strict=True)):
        if not measures:
            continue
        by_unit = {one.unit: quantity(one.what, one.unit, one.measured) for one in measures}
        said = f"{by_unit.get('rows', ''):>12}", f"{by_unit.get('bytes', ''):>8}", f"{by_unit.get('seconds', ''):>8}"
        where = "dl" if isinstance(step, PipeStep) else "graph"
        lines += aligned(f"{number:>2} {step.label}", where, *said, beside=BESIDE)
        lines += _off_lines(measures, ran)
    if ran.own is not None:
        lines += own_line(duration(ran.own))
    if not job.traits.in_process:
        lines += wrapped(UNLISTED * (not all(ran.steps)) + ONE_JOB, WIDTH)
    return lines


def _off_lines(measures: Sequence[Measure], ran: Ran) -> list[str]:
    return [
        line
        for one in _off(measures, ran)
        for line in wrapped(
            f"     ! {one.unit}: {quantity(one.what, one.unit, one.estimated or 0.0)} estimated, {one.times:.1f} times off",
            WIDTH,
        )
    ]


def _off(measures: Sequence[Measure], ran: Ran) -> list[Measure]:
    """Return the measures to mark. Seconds are marked only if they matter to the pass."""
    found = [one for one in measures if one.times > OFF]
    least = NOTED * ran.seconds
    return [one for one in found if one.unit != "seconds" or abs(one.measured - (one.estimated or 0.0)) > least]


def totals_data(totals: Sequence[Measure]) -> list[dict[str, Any]]:
    """Return measures of whole passes or epochs as plain data."""
    return [{**asdict(one), "off": one.times > OFF} for one in totals]


def analysis_data(found: Analysis) -> Measured:
    """Return the analysis as plain data."""
    steps = {
        name: [{one.what: one.measured for one in measures} | {"off": [one.what for one in _off(measures, ran)]}
               for measures in ran.steps]
        for name, ran in found.passes.items()
    }  # fmt: skip
    own = {name: ran.own for name, ran in found.passes.items() if ran.own is not None}
    return Measured(totals_data(found.totals), steps, own)
