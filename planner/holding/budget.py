"""The memory of a pass on "local" under a limit: the columns that stay there, and the order of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.estimate import columns_bytes
from planner.holding.hold_columns import NOTHING, Holding, least_moved
from planner.holding.memory_use import MemoryUse, Uses
from planner.holding.order_steps import order_steps
from planner.keeping import trained_stages
from planner.layout import Layout
from planner.local_memory import (
    MARGIN,
    local_expected,
    local_floor,
    local_gaps,
    reading_bytes,
    stage_kept,
    step_in_hand,
    works_in_parts,
)
from planner.physical import Mode, Plan
from planner.shares import DRIVER_BYTES
from planner.statistics import Statistics
from planner.steps.pipe import PipeStep
from planner.steps.step import Step
from planner.traits import EngineTraits

SAVED = "saved values of "
"""The beginning of the name of a stage's saved values, which are held as a column is."""
COMMITS: Mapping[Mode, str] = {"turn": "gradients", "backward": "gradients", "evaluate": "metrics"}
"""The sums to which runs of a stage add, by mode. Runs that add to one sum stay in their order."""


@dataclass(frozen=True)
class Budget:
    """The memory of a job on "local" some of whose columns lie in files."""

    limit: int  # bytes of the whole process
    layout: Layout

    @classmethod
    def of(cls, traits: EngineTraits, layout: Layout) -> Budget | None:
        """Return the budget of a job; None if no column lies in a file, or if that is not settled before it runs."""
        return None if layout.within is None or traits.memory != "process" else cls(layout.within, layout)

    def of_columns(self, plan: Plan, statistics: Statistics) -> int:
        """Return the bytes for columns and for what steps have in hand. It is negative if the graph alone takes more."""
        whole = (self.limit - DRIVER_BYTES) / local_gaps(plan)
        return int(whole) - local_floor(plan, statistics, self.layout)

    def holding(self, plan: Plan, steps: Sequence[Step], statistics: Statistics) -> Holding | None:
        """Return the columns and saved values that stay in memory in a pass; None if some step does not fit."""
        return least_moved(pass_uses(plan, steps, statistics, self.layout), self.of_columns(plan, statistics))

    def ordered(self, plan: Plan, statistics: Statistics) -> Plan:
        """Return the plan with the steps of each pass in the order in which the columns that exist together take least."""

        def sorted_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
            given = pass_uses(plan, steps, statistics, self.layout)
            return tuple(steps[number] for number in order_steps(Uses(given.uses, given.sizes, fixed=False)))

        prepare, train, both, evaluate, predict = map(sorted_steps, plan.passes)
        return replace(plan, prepare=prepare, train=train, train_and_evaluate=both, evaluate=evaluate, predict=predict)

    def peak(self, plan: Plan, statistics: Statistics) -> int:
        """Return the estimated peak of the process in bytes, which is at most the limit."""
        held = 0
        for steps in plan.passes:
            holding, before = self.holding(plan, steps, statistics), NOTHING
            uses = pass_uses(plan, steps, statistics, self.layout)
            for number, kept in enumerate(() if holding is None else holding.kept):
                held = max(held, uses.needed(number, before | kept))
                before = kept
        floor = local_expected(plan, statistics, self.layout)
        expected = local_gaps(plan) / MARGIN * max(reading_bytes(statistics), floor + held)
        return min(self.limit, DRIVER_BYTES + int(expected))


def saved_by(stage: str) -> str:
    """Return the name of a stage's saved values."""
    return f"{SAVED}{stage}"


def pass_uses(plan: Plan, steps: Sequence[Step], statistics: Statistics, layout: Layout) -> Uses:
    """Return what the steps of a pass need of memory, in the order of the pass.

    Columns of few rows and of edges are left out, and so are static columns but for features and what was computed once:
    they are in memory in any case.
    """
    every = columns_bytes(plan, steps, statistics)
    own = {column.name for column in plan.static_columns if column.name != "features"}
    few = {column.name for step in steps for column in step.columns_made if column.few or column.edges is not None}
    sizes = {name: size for name, size in every.items() if size and name not in own | few}
    backward = {step.stage for step in steps if isinstance(step, PipeStep) and step.mode == "backward"}
    for stage, within in trained_stages(plan):
        if stage.name in backward and not stage.edge_sets and (kept := stage_kept(stage, within, statistics)):
            sizes[saved_by(stage.name)] = kept
    uses = []
    for step in steps:
        reads, makes = set(step.reads), set(step.makes)
        if isinstance(step, PipeStep) and step.mode in ("forward", "backward"):
            (makes if step.mode == "forward" else reads).add(saved_by(step.stage))
        read, written = frozenset(reads & sizes.keys()), frozenset(makes & sizes.keys())
        whole = frozenset() if works_in_parts(plan, step) else read | written
        in_hand = step_in_hand(plan, step, every, statistics, layout) - sum(sizes[name] for name in whole)
        keyed = frozenset([COMMITS.get(step.mode, "")] if isinstance(step, PipeStep) else []) - {""}
        uses.append(MemoryUse(read, written, whole, in_hand, keyed))
    return Uses(uses, sizes)


def moved_bytes(plan: Plan, steps: Sequence[Step], statistics: Statistics, budget: Budget) -> list[int]:
    """Return the bytes that go to files or come from them at each step of a pass."""
    holding = budget.holding(plan, steps, statistics)
    if holding is None:
        return [0] * len(steps)
    sizes = pass_uses(plan, steps, statistics, budget.layout).sizes
    moved = ([*reads, *stores] for reads, stores in zip(holding.reads, holding.stores, strict=True))
    return [sum(sizes[name] for name in names) for names in moved]
