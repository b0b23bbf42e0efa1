"""The backward pass while it is built, to which steps add their adjoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.physical import Column, Stage
from planner.spec import EdgeSet, is_static_column
from planner.steps.step import Step


def is_constant(column: str) -> bool:
    """Return True for a static column for which no gradient is defined."""
    return column != "features" and is_static_column(column)


@dataclass
class Backward(ABC):
    """The backward pass while it is built: its steps so far, and the columns that make up the gradient of each column."""

    stages: Mapping[str, Stage]  # stages of forward, by name
    rgb: bool  # True if gradients are summed per vertex before they cross a partition boundary
    levels: Mapping[str, int | None]  # level of each column that forward makes
    steps: list[Step] = field(default_factory=list)
    gradients: dict[str, list[str]] = field(default_factory=dict)  # column -> columns whose sum is its gradient
    contributions: dict[tuple[str, str], Column] = field(default_factory=dict)  # (collection, column) -> contributions
    made: list[Stage] = field(default_factory=list)  # stages that only backward has
    passed: int = 0  # number of columns made by adjoints of graph operators so far, for their names

    @abstractmethod
    def gradient(self, column: Column) -> str | None:
        """Return the name of the column that holds the gradient of a graph operator's output, or None if there is none.

        Several contributions are added first.
        """

    def fresh(self, column: str) -> str:
        """Return a new name for a gradient, which is derived from a column's name."""
        self.passed += 1
        return f"d_{column}.{self.passed}"

    def column(self, of: str, shape: tuple[int, ...], edges: EdgeSet | None = None, name: str | None = None) -> Column:
        """Return a column for the gradient of a column, or for a part of it. It has as many rows.

        Args:
            of: The name of the column that it is a gradient of.
            shape: The shape of a row.
            edges: The edge set, for an edge column.
            name: The name of the new column; None: a fresh name.
        """
        return Column(name or self.fresh(of), shape, edges=edges, within=self.levels.get(of))

    def add(self, step: Step, of: str | None = None) -> None:
        """Add a step. If `of` is given, the one column that the step makes is a part of the gradient of that column."""
        self.steps.append(step)
        if of is not None:
            self.contribute(of, step.makes[0])

    def add_stage(self, stage: Stage, output: Column) -> None:
        """Add a stage that only backward has, and a step that runs it on vertices to make its one output.

        Args:
            stage: The stage, all of whose inputs are columns of vertices.
            output: The column that it makes. It is made up to that column's level.
        """
        # imported here, because a pipe step has an adjoint, and so imports this module
        from planner.steps.pipe import PipeStep

        self.made.append(stage)
        inputs = tuple(i.column for i in stage.inputs)
        self.steps.append(PipeStep(stage.name, "forward", inputs, (), (), (output,), within=output.within))

    def contribute(self, of: str, part: str) -> None:
        """Note that a column is a part of the gradient of the column `of`, if that has a gradient."""
        if not is_constant(of):
            self.gradients.setdefault(of, []).append(part)
