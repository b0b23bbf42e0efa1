"""The common part of all steps on edges, and of the operators that become such steps.

Each file beside this one holds an operator of the operator graph, its step, and the steps of its adjoint.
docs/developing/adding-a-step.md explains an example.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from planner.edge_sets import is_reversed, reversed_set
from planner.estimate import row_bytes
from planner.layout import Layout
from planner.nodes import GraphOperator, Node, operator
from planner.physical import Column, Plan
from planner.spec import Ability, EdgeSet
from planner.statistics import Statistics
from planner.steps.backward import Backward
from planner.steps.step import AtSources, ColumnStep, Naming
from planner.traits import EngineTraits
from planner.work import Work

EDGE_CALLS = 2  # calls of torch's operators for a step on edges that runs in this process
OUT_OF_ORDER = 4  # operations to read a number of an edge column by source; by destination it is one operation
BOTH_ENDS = 2  # numbers counted for each multiplication of a dot product along edges, which reads both ends


@operator
class EdgeOperator(GraphOperator):
    """An operator of the Graph Engine that yields an edge column, or leads from edge columns to vertices.

    An edge column holds a few numbers for every edge of an edge set, such as one for each head of an attention layer.
    """

    def step(self, output: Column, names: Mapping[Node, str]) -> EdgeStep:
        """Return the step that makes its column.

        Args:
            output: The column that it yields.
            names: The names of all columns, by operator.
        """
        raise NotImplementedError

    @property
    def shown(self) -> list[str]:
        """The fields that its printed form has besides its inputs and its layer."""
        return []


@dataclass(frozen=True)
class EdgeStep(ColumnStep):
    """A step that reads or makes edge columns, or picks among in-edges. It needs an engine with the ability `NEEDS`."""

    output: Column
    edges: EdgeSet
    within: int | None = field(default=None, kw_only=True)  # level up to which its edges end; None: all

    NEEDS: ClassVar[Ability] = "edge_columns"  # ability that an engine needs to run it
    READS: ClassVar[tuple[str, ...]] = ("input",)  # fields that name the columns it reads
    AT_SOURCES: ClassVar[tuple[str, ...]] = ()  # the fields in READS whose columns are read where edges begin
    OF_EDGES: ClassVar[tuple[str, ...]] = ()  # the fields in READS that name edge columns
    IN_RUNS: ClassVar[bool] = False  # True if it can run on some vertices at a time, with all of their in-edges
    DRAWS: ClassVar[bool] = False  # True if it draws random numbers

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that it reads."""
        return tuple(getattr(self, name) for name in self.READS)

    @property
    def at_sources(self) -> tuple[str, ...]:
        """The names of the columns that it reads where its edges begin."""
        return tuple(getattr(self, name) for name in self.AT_SOURCES)

    @property
    def of_edges(self) -> tuple[str, ...]:
        """The names of the edge columns that it reads."""
        return tuple(getattr(self, name) for name in self.OF_EDGES)

    @property
    def in_runs(self) -> bool:
        """True if it can run on some vertices at a time, with all of their in-edges."""
        return self.IN_RUNS

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The names of the columns that it reads, each once."""
        return tuple(dict.fromkeys(self.columns))

    @property
    def hop_away(self) -> tuple[str, ...]:
        """The names of the columns that it reads where its edges begin."""
        return self.at_sources

    @property
    def words(self) -> list[str]:
        """The parts of its label before the edge set."""
        return [*self.columns]

    @property
    def label(self) -> str:
        """The kind of the step, its columns and settings, and its output."""
        within = [] if self.within is None else [f"within={self.within}"]
        name = type(self).__name__.removesuffix("Step")
        return f"{name}({', '.join([*self.words, self.edges, *within])}) -> {self.output.name}"

    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """Return the same step under other names."""
        read: dict[str, Any] = {name: to(getattr(self, name)) for name in self.READS}
        return replace(self, output=replace(self.output, name=to(self.output.name)), **read)

    def differentiate(self, backward: Backward) -> None:
        """Add the adjoint to backward, if its output has a gradient. Contributions to that gradient are added first."""
        gradient = backward.gradient(self.output)
        if gradient is not None:
            self.adjoint(gradient, backward)

    def adjoint(self, gradient: str, backward: Backward) -> None:
        """Add the steps that turn the gradient of its output into those of the columns that it reads.

        Args:
            gradient: The name of the column with the gradient of its output.
            backward: The backward pass to which steps are added.

        Raises:
            TypeError: If it is a step of backward, which is never differentiated.
        """
        raise TypeError(f"{type(self).__name__} is a step of backward, which has no adjoint")

    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """Return the amounts of work on all of its edges, and the number of operators that this process calls for it."""
        found = self.work_on(statistics.edge_count(self.edges, self.within), plan)
        found.calls = EDGE_CALLS if traits.in_process else 0.0
        return found

    def turned(self) -> EdgeStep | None:
        """Return the step over the edge set with both ends exchanged that makes the same of the same columns.

        Edge columns have the order of that set there. None if there is no such step.
        """
        return None

    def exchanged(self, **changes: Any) -> Self:
        """Return the step over the edge set with both ends exchanged, and with other fields changed."""
        edges, output = reversed_set(self.edges), self.output
        if output.edges is not None:
            output = replace(output, edges=reversed_set(output.edges))
        return replace(self, edges=edges, output=output, **changes)

    @abstractmethod
    def work_on(self, edges: int, plan: Plan) -> Work:
        """Return the amounts of its work on so many edges."""

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Return the bytes of the columns that it brings to edges, and of the sums that partitions send back.

        A column is brought once for all steps of a pass.
        """
        if not layout.shuffled:
            return 0.0
        turned = is_reversed(self.edges)
        new = {(name, self.within, turned) for name in self.at_sources} - brought
        brought |= new
        return sum(row_bytes(plan.columns[name]) for name, _, _ in new) * others + self.bytes_returned(others)

    def bytes_returned(self, others: float) -> float:
        """Return the bytes that partitions send back for each source, if the step sums at sources."""
        return 0.0
