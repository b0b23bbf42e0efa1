"""The interface of all steps, which planning, pricing and explaining use."""

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
"""A function from an old name to a new one."""

AtSources = tuple[str, int | None, bool]
"""A column that is read at the sources of edges, the level up to which these edges end, and True if they are turned round."""


class Step(ABC):
    """One step of a pass, which makes columns, or a collection, out of columns."""

    within: int | None
    """The level up to which it runs; None: on all rows."""

    @property
    @abstractmethod
    def reads(self) -> tuple[str, ...]:
        """The names of the columns and collections that it reads, each once."""

    @property
    @abstractmethod
    def makes(self) -> tuple[str, ...]:
        """The names of the columns that it makes, or of the collection."""

    @property
    @abstractmethod
    def columns_made(self) -> tuple[Column, ...]:
        """The columns that it makes. A collection is not a column."""

    @property
    def hop_away(self) -> tuple[str, ...]:
        """The names of the columns of which it reads rows one hop farther from a target than the rows that it makes."""
        return ()

    @property
    def read_whole(self) -> tuple[str, ...]:
        """The names of the columns of which every task on Spark reads the rows of all partitions."""
        return ()

    @property
    def read_everywhere(self) -> tuple[str, ...]:
        """The names of the columns of which the rows of all vertices take part in each row that it makes."""
        return ()

    @property
    def turns(self) -> bool:
        """True if backward begins with it: it takes the model's output to the loss and its gradient."""
        return False

    @property
    @abstractmethod
    def label(self) -> str:
        """The text of the step, for explain."""

    @abstractmethod
    def up_to(self, level: int) -> Self:
        """Return the same step on the vertices up to a level, and the edges that end there."""

    @abstractmethod
    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """Return the same step under other names.

        Args:
            to: A function that renames the columns and collections that it reads and makes.
            stage: A function that renames the stage that it runs, if it runs one.
        """

    @abstractmethod
    def differentiate(self, backward: Backward) -> None:
        """Add the adjoint to backward: steps from the gradients of its outputs to those of its inputs, if there are any."""

    @abstractmethod
    def rows(self, statistics: Statistics) -> int:
        """Return the number of rows that it hands on: vertices, or edges if it makes an edge column or a collection."""

    @abstractmethod
    def bytes(self, statistics: Statistics, plan: Plan) -> int:
        """Return the bytes that it hands on."""

    @abstractmethod
    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Return the bytes that partitions send one another for each vertex at which edges begin.

        Args:
            plan: The plan with this step.
            layout: The spread of the job over the host.
            others: The mean number of other partitions that have an edge from such a vertex.
            brought: The columns that earlier steps of the pass have brought to the edges. Those that this step brings
                are added.
        """


class GraphStep(Step):
    """A step that the Graph Engine runs."""

    @abstractmethod
    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """Return the amounts of its work. Its shuffles, and the fixed cost of a step, are not counted here.

        Args:
            plan: The plan with this step.
            statistics: The statistics of the graph.
            traits: The traits of the engine that runs it.
            layout: The spread of the job over the host.
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
        """The column of its output."""
        return (self.output,)

    def up_to(self, level: int) -> Self:
        """Return the same step, whose output has the rows up to a level."""
        return self._renewed(within=level, output=replace(self.output, within=level))

    def side_by_side(self, output: Column, model: int) -> Self:
        """Return the step for several models, whose rows lie side by side in the columns that it reads and makes.

        Args:
            output: The column for all models.
            model: The number of the first of them in the batch.
        """
        return self._renewed(output=output)

    def rows(self, statistics: Statistics) -> int:
        """Return the number of rows of its output."""
        if self.output.few:
            return 1
        edges, within = self.output.edges, self.output.within
        return statistics.rows_within(within) if edges is None else statistics.edge_count(edges, within)

    def bytes(self, statistics: Statistics, plan: Plan) -> int:
        """Return the bytes of its output."""
        return self.rows(statistics) * row_bytes(self.output)

    def _renewed(self, **changes: Any) -> Self:
        return cast(Self, replace(cast(Any, self), **changes))  # every kind of step is a dataclass


class InputStep(ColumnStep):
    """A step that makes one column out of one other, `input`."""

    input: str

    @property
    def reads(self) -> tuple[str, ...]:
        """The name of its input."""
        return (self.input,)

    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """Return the same step under other names."""
        return self._renewed(input=to(self.input), output=replace(self.output, name=to(self.output.name)))
