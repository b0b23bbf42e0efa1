"""The common part of all steps on edges, and of the operators that become such steps.

A file beside this one holds an operator of the operator graph, its step, and the steps that its adjoint needs.
docs/developing/adding-a-step.md goes through an example.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

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

EDGE_CALLS = 2  # of torch's operators, by which a step on edges is made in this process
OUT_OF_ORDER = 4  # operations to read a number of an edge column by source, where by destination it takes one
BOTH_ENDS = 2  # numbers that a product along edges reads, for each that it multiplies


@operator
class EdgeOperator(GraphOperator):
    """An operator of the Graph Engine on edges: it yields a column of edges, or leads from one to vertices.

    An edge column is a value of every edge of an edge set, of a few numbers (one for each head of an attention layer).
    """

    def step(self, output: Column, names: Mapping[Node, str]) -> EdgeStep:
        """The step that makes its column.

        Args:
            output: the column that it yields.
            names: of all columns.
        """
        raise NotImplementedError

    @property
    def shown(self) -> list[str]:
        """What the printed form says of it beside its inputs and its layer."""
        return []


@dataclass(frozen=True)
class EdgeStep(ColumnStep):
    """A step that reads or makes edge columns, or picks among in-edges; for engines with the ability."""

    output: Column
    edges: EdgeSet
    within: int | None = field(default=None, kw_only=True)  # the level up to which edges end that it is about

    NEEDS: ClassVar[Ability] = "edge_columns"  # of an engine that runs it
    READS: ClassVar[tuple[str, ...]] = ("input",)  # the fields that name columns
    AT_SOURCES: ClassVar[tuple[str, ...]] = ()  # of these, the fields of columns that are read where edges begin
    DRAWS: ClassVar[bool] = False  # random numbers

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(getattr(self, name) for name in self.READS)

    @property
    def at_sources(self) -> tuple[str, ...]:
        """Of the columns that it reads, those that it reads where its edges begin."""
        return tuple(getattr(self, name) for name in self.AT_SOURCES)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The columns that it reads, each once."""
        return tuple(dict.fromkeys(self.columns))

    @property
    def hop_away(self) -> tuple[str, ...]:
        """What it reads where its edges begin."""
        return self.at_sources

    @property
    def words(self) -> list[str]:
        """What its label says before the edge set."""
        return [*self.columns]

    @property
    def label(self) -> str:
        """Its kind, its columns and settings, and its output."""
        within = [] if self.within is None else [f"within={self.within}"]
        name = type(self).__name__.removesuffix("Step")
        return f"{name}({', '.join([*self.words, self.edges, *within])}) -> {self.output.name}"

    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """The same step under other names."""
        read: dict[str, Any] = {name: to(getattr(self, name)) for name in self.READS}
        return replace(self, output=replace(self.output, name=to(self.output.name)), **read)

    def differentiate(self, backward: Backward) -> None:
        """Add its adjoint, given the gradient of its output: contributions to an edge column are added on the edges."""
        gradient = backward.gradient(self.output)
        if gradient is not None:
            self.adjoint(gradient, backward)

    def adjoint(self, gradient: str, backward: Backward) -> None:
        """Add the steps that turn the gradient of its output into those of the columns that it reads.

        Args:
            gradient: the column that holds the gradient of its output.
            backward: what to add to.

        Raises:
            TypeError: it is a step of backward alone, which nobody differentiates.
        """
        raise TypeError(f"{type(self).__name__} is no step of forward")

    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """Its amounts of work on all of its edges, and the operators that this process calls for it."""
        found = self.work_on(statistics.edge_count(self.edges, self.within), plan)
        found.calls = EDGE_CALLS if traits.in_process else 0.0
        return found

    @abstractmethod
    def work_on(self, edges: int, plan: Plan) -> Work:
        """Its amounts of work on so many edges."""

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """What it reads at sources, brought there once for all steps of a pass; and what partitions have summed for one."""
        if not layout.shuffled:
            return 0.0
        new = {(name, self.within) for name in self.at_sources} - brought
        brought |= new
        return sum(row_bytes(plan.columns[name]) for name, _ in new) * others + self.bytes_returned(others)

    def bytes_returned(self, others: float) -> float:
        """Bytes that partitions send back for each source: their sums of what it makes there."""
        return 0.0
