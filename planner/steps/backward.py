"""What the adjoints of steps are added to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.physical import Column, Stage
from planner.spec import STATIC_COLUMNS, EdgeSet
from planner.steps.step import Step

CONSTANTS = frozenset(STATIC_COLUMNS) - {"features"}
"""Static columns that no gradient is defined for."""


@dataclass
class Backward(ABC):
    """The backward pass in the making: its steps so far, and which columns make up the gradient of each column."""

    stages: Mapping[str, Stage]  # of forward, by name
    rgb: bool  # whether gradients are summed per vertex before they cross a partition boundary
    levels: Mapping[str, int | None]  # of the columns that forward makes
    steps: list[Step] = field(default_factory=list)
    gradients: dict[str, list[str]] = field(default_factory=dict)  # column -> columns whose sum is its gradient
    contributions: dict[tuple[str, str], Column] = field(default_factory=dict)  # (collection, column) -> contributions
    passed: int = 0  # columns made by adjoints of graph operators so far, to number them

    @abstractmethod
    def gradient(self, column: Column) -> str | None:
        """The column that holds the gradient of what a graph operator made; None where it has none.

        Several contributions are added first.
        """

    def fresh(self, column: str) -> str:
        """A name for a gradient that has to do with a column."""
        self.passed += 1
        return f"d_{column}.{self.passed}"

    def column(self, of: str, shape: tuple[int, ...], edges: EdgeSet | None = None, name: str | None = None) -> Column:
        """A column for (a part of) the gradient of a column, with as many rows.

        Args:
            of: the column that it is a gradient of.
            shape: of a row.
            edges: of an edge column.
            name: its name; None: a fresh one.
        """
        return Column(name or self.fresh(of), shape, edges=edges, within=self.levels.get(of))

    def add(self, step: Step, of: str | None = None) -> None:
        """Add a step; the one column that it makes is a part of the gradient of the column `of`, if that is given."""
        self.steps.append(step)
        if of is not None:
            self.contribute(of, step.makes[0])

    def contribute(self, of: str, part: str) -> None:
        """Note that a column is a part of the gradient of the column `of`, if that has a gradient."""
        if of not in CONSTANTS:
            self.gradients.setdefault(of, []).append(part)
