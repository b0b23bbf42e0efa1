"""Adds up the seconds of a pass: the fixed part, and the work of the Graph Engine and the DL Engine side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter, mul

from planner.cost.counting import step_work
from planner.cost.shuffles import shuffled_bytes
from planner.cost.spark_storage import stored_bytes
from planner.cost.stages import beyond_memory
from planner.holding.budget import Budget, moved_bytes
from planner.layout import Layout
from planner.physical import Plan
from planner.rates import Rates
from planner.shares import Crew
from planner.statistics import Statistics
from planner.steps.step import Step
from planner.traits import ONE_PROCESS, EngineTraits
from planner.work import GROUPS, Work, total

WAYS = 2  # a spilled byte is written and read
GRADIENT_BYTES = 8  # workers hand in parameters' gradients as float64 sums over chunks
PASS = Work(passes=1)  # the work of a pass itself, without its steps
_OF_GROUP = {name: attrgetter(*units) for name, units in GROUPS.items()}  # a group's units, from Work or Rates


@dataclass(frozen=True)
class Corrections:
    """Factors by which runs on this machine took longer than estimated, for each group of `planner.work.GROUPS`."""

    fixed: float = 1.0
    graph: float = 1.0
    neural: float = 1.0


@dataclass(frozen=True)
class Pricing:
    """The inputs that turn a plan into seconds: the engine, the spread of its work, and the seconds of a unit of work."""

    traits: EngineTraits = ONE_PROCESS
    layout: Layout = field(default_factory=lambda: Layout(Crew(2, 2), 2, cores=2))
    measured: Rates | None = None  # rates measured on this machine, or None
    corrections: Corrections = Corrections()
    runs: int = 0  # number of runs on which the corrections rest

    @property
    def rates(self) -> Rates:
        """The seconds of each unit of work, measured on this machine, or else on another."""
        return self.traits.rates if self.measured is None else self.measured


@dataclass(frozen=True)
class StepCost:
    """The estimated cost of one step of a pass.

    `seconds` is the step's share of the pass. The seconds of the pass itself, without its steps, are no part of it.
    """

    work: Work
    seconds: float
    hands_in: bool = False  # True if other processes hand in the gradients of parameters

    @property
    def shuffled_bytes(self) -> float:
        """The bytes that partitions send one another."""
        return self.work.shuffled_bytes

    @property
    def driver_bytes(self) -> float:
        """The bytes of rows between the driver and their vertices in Spark, both ways."""
        return self.work.driver_bytes

    @property
    def piped_bytes(self) -> float:
        """The bytes of rows between Graph Engine and DL Engine, both ways, and of the gradients that are handed in."""
        return self.work.piped_bytes + self.hands_in * GRADIENT_BYTES * self.work.parameter_numbers

    @property
    def spilled_bytes(self) -> float:
        """The bytes that are written to files and read back, as workers do, or "local" under a limit."""
        return self.work.spilled_bytes


@dataclass(frozen=True)
class PassCost:
    """The estimated cost of a pass."""

    works: tuple[Work, ...]  # the work of its steps, in order
    own: float  # seconds without its steps: to begin and end it, and for the optimizer's step
    groups: dict[str, float]  # each group's part of the seconds, without corrections
    seconds: float
    prices: dict[str, tuple[float, ...]]  # seconds of each unit of a group, in this pass
    hands_in: bool = False  # as in `StepCost`

    @cached_property
    def steps(self) -> tuple[StepCost, ...]:
        """The cost of each step."""
        return tuple(StepCost(work, sum(_seconds(work, self.prices).values()), self.hands_in) for work in self.works)

    @property
    def filed(self) -> tuple[float, float]:
        """The bytes of columns that go to Spark's local disk or come from there, and the seconds of the pass for them."""
        count = sum(work.filed_bytes for work in self.works)
        return count, count and count * self.prices["graph"][GROUPS["graph"].index("filed_bytes")]

    def moved(self, how: str) -> float:
        """Return the bytes of all steps together that are one of `MOVED` in `planner.explain.text`."""
        return float(sum(getattr(step, f"{how}_bytes") for step in self.steps))


def epoch_seconds(plan: Plan, statistics: Statistics, pricing: Pricing) -> PassCost:
    """Estimate the seconds of the training pass of an epoch."""
    return pass_seconds(plan, plan.train, statistics, pricing)


def pass_seconds(plan: Plan, steps: Sequence[Step], statistics: Statistics, pricing: Pricing) -> PassCost:
    """Estimate the seconds of a pass.

    Args:
        plan: The plan.
        steps: One of the plan's passes.
        statistics: The statistics of the graph.
        pricing: The engine, layout and rates.
    """
    if not steps:
        return PassCost((), 0.0, dict.fromkeys(GROUPS, 0.0), 0.0, {})
    beyond = beyond_memory(plan, statistics, pricing.traits, pricing.layout)
    works = [step_work(step, plan, statistics, pricing.traits, pricing.layout, beyond) for step in steps]
    if pricing.traits.counts_shuffles:
        sent = shuffled_bytes(steps, plan, statistics, pricing.layout)
        for work, count in zip(works, sent, strict=True):
            work.shuffled_bytes = count
    for work, moved in zip(works, stored_bytes(plan, steps, statistics, pricing.layout), strict=True):
        work.filed_bytes += moved
    budget = Budget.of(pricing.traits, pricing.layout)
    if budget is not None:
        for work, moved in zip(works, moved_bytes(plan, steps, statistics, budget), strict=True):
            work.spilled_bytes += moved / WAYS
    rates = {name: of_group(pricing.rates) for name, of_group in _OF_GROUP.items()}
    whole = _seconds(total((*works, PASS)), rates)
    share = _shares(whole, pricing, pricing.corrections)
    prices = {name: tuple(share[name] * rate for rate in rates[name]) for name in GROUPS}
    plain = _shares(whole, pricing, Corrections())
    groups = {name: plain[name] * whole[name] for name in GROUPS}
    seconds = sum(share[name] * whole[name] for name in GROUPS)
    own = _seconds(PASS, prices)["fixed"]
    return PassCost(tuple(works), own, groups, seconds, prices, hands_in=not pricing.traits.in_process)


def work_seconds(work: Work, pricing: Pricing) -> float:
    """Estimate the seconds of some work as a part of a pass, without the seconds of the pass itself."""
    whole = _seconds(work, {name: of_group(pricing.rates) for name, of_group in _OF_GROUP.items()})
    share = _shares(whole, pricing, pricing.corrections)
    return sum(share[name] * whole[name] for name in GROUPS)


def _seconds(work: Work, prices: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the seconds of some work, by group."""
    return {name: float(sum(map(mul, of_group(work), prices[name]))) for name, of_group in _OF_GROUP.items()}


def parallelism(pricing: Pricing) -> dict[str, float]:
    """Return the number of processors that the work of each group can keep busy by itself."""
    layout = pricing.layout
    if pricing.traits.in_process:
        return {"fixed": 1.0, "graph": layout.cores, "neural": layout.cores}
    tasks, workers = min(layout.crew.tasks, layout.partitions), layout.workers
    return {"fixed": 1.0, "graph": max(1, min(tasks, layout.cores)), "neural": max(1, min(workers, layout.cores))}


def _shares(whole: dict[str, float], pricing: Pricing, corrections: Corrections) -> dict[str, float]:
    """Return the seconds of the pass for each processor second of a group.

    Tasks and workers run side by side. So the pass lasts as long as the longest of three: the tasks, the workers, and
    all work spread over all processors.
    """
    corrected = {name: value * getattr(corrections, name) for name, value in whole.items()}
    both = corrected["graph"] + corrected["neural"]
    busy = parallelism(pricing)
    longest = max(both / pricing.layout.cores, corrected["graph"] / busy["graph"], corrected["neural"] / busy["neural"])
    share = longest / both if both else 0.0
    return {name: getattr(corrections, name) * (1.0 if name == "fixed" else share) for name in whole}
