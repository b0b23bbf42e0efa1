"""Moves columns between memory and files during a pass, as `planner.holding` plans it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from lotan.engines.base import Handle
from lotan.engines.local.columns import Columns
from lotan.memory.trim import give_back_freed
from planner.holding.budget import SAVED, Budget
from planner.holding.hold_columns import Holding
from planner.physical import Plan
from planner.statistics import Statistics
from planner.steps.step import Step


class Moves:
    """The columns of the running pass that are in memory, step by step.

    Args:
        budget: The memory for columns; None: columns stay where they were made.
    """

    def __init__(self, budget: Budget | None) -> None:
        self._budget = budget
        self.statistics: Statistics | None = None  # of the loaded graph; None: not known, so that nothing is planned
        self._planned: dict[int, tuple[Sequence[Step], Holding | None]] = {}  # by the identity of a pass's steps
        self._holding: Holding | None = None
        self._columns = Columns()
        self._files: dict[str, Tensor] = {}  # columns that are in memory and in a file, as they lie in the file

    def begin(self, plan: Plan, steps: Sequence[Step], columns: Columns) -> None:
        """Plan a pass, and say to `columns` which are made in memory."""
        self._columns, self._files, self._holding = columns, {}, None
        if self._budget is not None and self.statistics is not None:
            if id(steps) not in self._planned:
                self._planned[id(steps)] = steps, self._budget.holding(plan, steps, self.statistics)
            self._holding = self._planned[id(steps)][1]
        columns.in_memory = ()

    @property
    def stages_in_memory(self) -> frozenset[str]:
        """The stages whose saved values stay in memory until their backward."""
        if self._holding is None:
            return frozenset()
        found = frozenset[str]().union(*self._holding.kept) - frozenset[str]().union(*self._holding.reads)
        return frozenset(name.removeprefix(SAVED) for name in found if name.startswith(SAVED))

    def load(self, number: int, held: dict[str, Handle], static: Mapping[str, Tensor]) -> None:
        """Bring columns into memory before a step, and prepare for those that it makes there.

        Args:
            number: The number of the step.
            held: The handles of the pass, by name.
            static: Static columns, which are not among them.
        """
        if self._holding is None:
            return
        kept = self._holding.kept[number]
        self._columns.in_memory = kept
        for name in sorted(self._holding.loads[number]):
            given = held.get(name, static.get(name))
            if isinstance(given, Tensor) and self._columns.in_file(given):
                self._files[name] = given
                held[name] = self._columns.copied(given, name)

    def store(self, number: int, held: dict[str, Handle]) -> None:
        """Move columns to files after a step, if they are read later and do not stay in memory."""
        if self._holding is None:
            return
        self._columns.in_memory = ()
        before = self._holding.kept[number - 1] if number else frozenset()
        for name in sorted(before - self._holding.kept[number]):
            given = held.get(name)
            if isinstance(given, Tensor) and not self._columns.in_file(given):
                found = self._files.pop(name, None)
                held[name] = self._columns.copied(given) if found is None else found
                self._columns.release(given)
        give_back_freed()
        for name in self._files.keys() - held.keys():  # the pass reads them no more
            self._columns.release(self._files.pop(name))

    def end(self) -> None:
        """Forget the pass."""
        for column in self._files.values():
            self._columns.release(column)
        self._files, self._holding = {}, None
