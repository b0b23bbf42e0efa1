"""Adds up the seconds of a pass: what is fixed, and the Graph Engine's beside the DL Engine's work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter, mul

from planner.cost.counting import step_work
from planner.cost.shuffles import shuffled_bytes
from planner.cost.stages import beyond_memory
from planner.layout import Layout
from planner.physical import Plan
from planner.rates import Rates
from planner.shares import Crew
from planner.statistics import Statistics
from planner.steps.step import Step
from planner.traits import ONE_PROCESS, EngineTraits
from planner.work import GROUPS, Work, total

GRADIENT_BYTES = 8  # of a number of a parameter's gradient as workers hand it in: sums over chunks are float64
PASS = Work(passes=1)  # what a pass takes beside its steps
_OF_GROUP = {name: attrgetter(*units) for name, units in GROUPS.items()}  # counts of work, and their rates


@dataclass(frozen=True)
class Corrections:
    """What runs on a machine have taken by what was estimated, by group of `planner.work.GROUPS`."""

    fixed: float = 1.0
    graph: float = 1.0
    neural: float = 1.0


@dataclass(frozen=True)
class Pricing:
    """All that turns a plan into seconds: the engine that runs it, how its work is spread, and what a unit of work takes."""

    traits: EngineTraits = ONE_PROCESS
    layout: Layout = field(default_factory=lambda: Layout(Crew(2, 2), 2, cores=2))
    measured: Rates | None = None  # on this machine; None: nobody has
    corrections: Corrections = Corrections()
    runs: int = 0  # on which the corrections rest

    @property
    def rates(self) -> Rates:
        """Seconds of each unit of work: as measured on this machine, or else on another."""
        return self.traits.rates if self.measured is None else self.measured


@dataclass(frozen=True)
class StepCost:
    """Of one step of a pass. Seconds: its part of the pass's, but for what that takes of its own."""

    work: Work
    seconds: float
    hands_in: bool = False  # whether parameters' gradients come from other processes

    @property
    def shuffled_bytes(self) -> float:
        """That cross between executors."""
        return self.work.shuffled_bytes

    @property
    def piped_bytes(self) -> float:
        """Of rows between Graph Engine and DL Engine, both ways, and of parameters' gradients."""
        return self.work.piped_bytes + self.hands_in * GRADIENT_BYTES * self.work.parameter_numbers

    @property
    def spilled_bytes(self) -> float:
        """That workers put in files."""
        return self.work.spilled_bytes


@dataclass(frozen=True)
class PassCost:
    """Of a walk over steps."""

    works: tuple[Work, ...]  # of its steps, in order
    own: float  # seconds whatever its steps: to begin and end it, and the optimizer's step
    groups: dict[str, float]  # their part of the seconds that it would take without corrections
    seconds: float
    prices: dict[str, tuple[float, ...]]  # of a group's units, in seconds of this walk
    hands_in: bool = False  # see `StepCost`

    @cached_property
    def steps(self) -> tuple[StepCost, ...]:
        """Of each step by itself."""
        return tuple(StepCost(work, sum(_seconds(work, self.prices).values()), self.hands_in) for work in self.works)

    def moved(self, how: str) -> float:
        """Bytes of all steps together: "piped", "shuffled" or "spilled"."""
        return float(sum(getattr(step, f"{how}_bytes") for step in self.steps))


def epoch_seconds(plan: Plan, statistics: Statistics, pricing: Pricing) -> PassCost:
    """What the training pass of an epoch is estimated to take."""
    return pass_seconds(plan, plan.train, statistics, pricing)


def pass_seconds(plan: Plan, steps: Sequence[Step], statistics: Statistics, pricing: Pricing) -> PassCost:
    """What a walk over `steps` is estimated to take.

    Args:
        plan: see there.
        steps: one of plan.passes.
        statistics: of the graph.
        pricing: engine, layout and rates.
    """
    if not steps:
        return PassCost((), 0.0, dict.fromkeys(GROUPS, 0.0), 0.0, {})
    beyond = beyond_memory(plan, statistics, pricing.traits, pricing.layout)
    works = [step_work(step, plan, statistics, pricing.traits, pricing.layout, beyond) for step in steps]
    if pricing.traits.counts_shuffles:
        sent = shuffled_bytes(steps, plan, statistics, pricing.layout)
        for work, count in zip(works, sent, strict=True):
            work.shuffled_bytes = count
    rates = {name: of_group(pricing.rates) for name, of_group in _OF_GROUP.items()}
    whole = _seconds(total((*works, PASS)), rates)
    share = _shares(whole, pricing, pricing.corrections)
    prices = {name: tuple(share[name] * rate for rate in rates[name]) for name in GROUPS}
    plain = _shares(whole, pricing, Corrections())
    groups = {name: plain[name] * whole[name] for name in GROUPS}
    seconds = sum(share[name] * whole[name] for name in GROUPS)
    own = _seconds(PASS, prices)["fixed"]
    return PassCost(tuple(works), own, groups, seconds, prices, hands_in=not pricing.traits.in_process)


def _seconds(work: Work, prices: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """By group."""
    return {name: float(sum(map(mul, of_group(work), prices[name]))) for name, of_group in _OF_GROUP.items()}


def parallelism(pricing: Pricing) -> dict[str, float]:
    """Processors that the work of each group may keep busy by itself."""
    layout = pricing.layout
    if pricing.traits.in_process:
        return {"fixed": 1.0, "graph": layout.cores, "neural": layout.cores}
    tasks, workers = min(layout.crew.tasks, layout.partitions), layout.workers
    return {"fixed": 1.0, "graph": max(1, min(tasks, layout.cores)), "neural": max(1, min(workers, layout.cores))}


def _shares(whole: dict[str, float], pricing: Pricing, corrections: Corrections) -> dict[str, float]:
    """Seconds of the pass for each processor second of a group.

    Tasks and workers run side by side: what lasts longest counts, the tasks, the workers, or all work on all processors.
    """
    corrected = {name: value * getattr(corrections, name) for name, value in whole.items()}
    both = corrected["graph"] + corrected["neural"]
    busy = parallelism(pricing)
    longest = max(both / pricing.layout.cores, corrected["graph"] / busy["graph"], corrected["neural"] / busy["neural"])
    share = longest / both if both else 0.0
    return {name: getattr(corrections, name) * (1.0 if name == "fixed" else share) for name in whole}
