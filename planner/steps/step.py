"""The interface of all steps: what planning, pricing and explaining ask of one, whichever it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

from planner.estimate import row_bytes
from planner.layout import Layout
from planner.physical import Column, Plan
from planner.statistics import Statistics
from planner.traits import EngineTraits
from planner.work import Work

if TYPE_CHECKING:
    from planner.steps.backward import Backward

Naming = Callable[[str], str]
"""From an old name to a new one."""

AtSources = tuple[str, int | None]
"""A column that is read at the sources of edges, and the level up to which these edges end."""


class Step(ABC):
    """One step of a pass: it makes columns, or a collection, out of columns."""

    within: int | None
    """The level up to which it runs; None: everywhere."""

    @property
    @abstractmethod
    def reads(self) -> tuple[str, ...]:
        """Names of the columns and collections that it reads, each once."""

    @property
    @abstractmethod
    def makes(self) -> tuple[str, ...]:
        """Names of the columns that it makes, or of the collection."""

    @property
    @abstractmethod
    def columns_made(self) -> tuple[Column, ...]:
        """The columns that it makes; a collection is none."""

    @property
    def hop_away(self) -> tuple[str, ...]:
        """Of the columns that it reads, those of which it reads rows one hop farther from a target than those it makes."""
        return ()

    @property
    def read_whole(self) -> tuple[str, ...]:
        """Of the columns that it reads, those of which every task on Spark reads the rows of all partitions."""
        return ()

    @property
    @abstractmethod
    def label(self) -> str:
        """The step in words, for explain."""

    @abstractmethod
    def up_to(self, level: int) -> Self:
        """The same step on the vertices up to a level, and the edges that end there."""

    @abstractmethod
    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """The same step under other names.

        Args:
            to: names the columns and collections that it reads and makes.
            stage: names the stage that it runs, if it runs one.
        """

    @abstractmethod
    def differentiate(self, backward: Backward) -> None:
        """Add its adjoint: the steps from the gradients of what it makes to those of what it reads, where there are any."""

    @abstractmethod
    def rows(self, statistics: Statistics) -> int:
        """Rows that it hands on: of vertices, or of edges where it makes an edge column or a collection."""

    @abstractmethod
    def bytes(self, statistics: Statistics, plan: Plan) -> int:
        """Bytes of what it hands on."""

    @abstractmethod
    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Bytes that partitions send one another for each vertex at which edges begin.

        Args:
            plan: that it is a step of.
            layout: how work is spread.
            others: partitions, beside its own, that have an edge from such a vertex.
            brought: what earlier steps of the pass have brought to where edges are; it takes up what this one brings.
        """


class GraphStep(Step):
    """A step that the Graph Engine runs."""

    @abstractmethod
    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """Its amounts of work, but for its shuffles and the step itself.

        Args:
            plan: that it is a step of.
            statistics: of the graph.
            traits: of the engine that runs it.
            layout: how work is spread.
        """


class ColumnStep(GraphStep):
    """A step of the Graph Engine that makes one column, `output`."""

    output: Column

    @property
    def makes(self) -> tuple[str, ...]:
        """The name of its output."""
        return (self.output.name,)

    @property
    def columns_made(self) -> tuple[Column, ...]:
        """Its output."""
        return (self.output,)

    def up_to(self, level: int) -> Self:
        """The same step, whose output has the rows up to a level."""
        return self._renewed(within=level, output=replace(self.output, within=level))

    def side_by_side(self, output: Column, model: int) -> Self:
        """The step for several models, whose rows lie side by side in the columns that it reads and makes.

        Args:
            output: of all models.
            model: the number of the first one in the batch.
        """
        return self._renewed(output=output)

    def rows(self, statistics: Statistics) -> int:
        """Rows of its output."""
        edges, within = self.output.edges, self.output.within
        return statistics.rows_within(within) if edges is None else statistics.edge_count(edges, within)

    def bytes(self, statistics: Statistics, plan: Plan) -> int:
        """Bytes of its output."""
        return self.rows(statistics) * row_bytes(self.output)

    def _renewed(self, **changes: Any) -> Self:
        return cast(Self, replace(cast(Any, self), **changes))  # every kind of step is a dataclass
