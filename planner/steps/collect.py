"""Collect, which brings the rows of in-neighbours to a vertex, and its adjoint Gather, which sums the returned rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from planner.chunks import chunk_count
from planner.estimate import CSR_BYTES_PER_EDGE, row_bytes
from planner.layout import Layout
from planner.physical import Column, Plan
from planner.spec import EdgeSet
from planner.statistics import Statistics
from planner.steps.backward import Backward
from planner.steps.step import AtSources, ColumnStep, GraphStep, Naming
from planner.traits import EngineTraits
from planner.work import Work


@dataclass(frozen=True)
class CollectStep(GraphStep):
    """Brings, for every vertex, its in-edges and the rows of `columns` at their sources to where the vertex is."""

    columns: tuple[str, ...]
    edges: EdgeSet
    output: str  # name of the collection
    within: int | None = None  # level up to which vertices have their neighbourhoods collected; None: all

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the columns that it collects."""
        return self.columns

    @property
    def makes(self) -> tuple[str, ...]:
        """The name of the collection."""
        return (self.output,)

    @property
    def columns_made(self) -> tuple[Column, ...]:
        """An empty tuple, because a collection is not a column."""
        return ()

    @property
    def hop_away(self) -> tuple[str, ...]:
        """The names of the columns that it collects."""
        return self.columns

    @property
    def label(self) -> str:
        """The columns and edges that it collects."""
        within = [] if self.within is None else [f"within={self.within}"]
        return f"Collect({', '.join([*self.columns, self.edges, *within])}) -> neighbourhoods"

    def up_to(self, level: int) -> Self:
        """Return the step for the vertices up to a level."""
        return replace(self, within=level)

    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """Return the same step under other names."""
        return replace(self, columns=tuple(map(to, self.columns)), output=to(self.output))

    def differentiate(self, backward: Backward) -> None:
        """Add a Gather for each collected column for which a stage returned contributions."""
        for name in self.columns:
            contributions = backward.contributions.get((self.output, name))
            if contributions is not None:
                column = backward.column(name, contributions.shape)
                backward.add(GatherStep(contributions.name, column, backward.rgb, self.within), of=name)

    def rows(self, statistics: Statistics) -> int:
        """Return the number of edges along which it collects."""
        return statistics.edge_count(self.edges, self.within)

    def bytes(self, statistics: Statistics, plan: Plan) -> int:
        """Return the bytes of its edges, and of the rows at their sources."""
        width = sum(row_bytes(plan.columns[name]) for name in self.columns)
        return self.rows(statistics) * (CSR_BYTES_PER_EDGE + width)

    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """Return the numbers of the rows that are collected."""
        rows = rows_collected(self.within, statistics, traits, layout)
        return Work(collected_numbers=rows * sum(plan.columns[name].width for name in self.columns))

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Return 0, because rows are sent only when a stage reads them."""
        return 0.0


@dataclass(frozen=True)
class GatherStep(ColumnStep):
    """The adjoint of Collect. It sums per vertex the rows that stages returned for the vertex as a source.

    With combine=False, rows are sent for each edge, which is the naive way.
    """

    contributions: str
    output: Column
    combine: bool = True
    within: int | None = None  # level up to which the edges end that contributed; None: all

    @property
    def reads(self) -> tuple[str, ...]:
        """The name of the contributions."""
        return (self.contributions,)

    @property
    def label(self) -> str:
        """The contributions that it sums, and its output."""
        within = [] if self.within is None else [f"within={self.within}"]
        naive = [] if self.combine else ["naive"]
        return f"Gather({', '.join([self.contributions, *naive, *within])}) -> {self.output.name}"

    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """Return the same step under other names."""
        output = replace(self.output, name=to(self.output.name))
        return replace(self, contributions=to(self.contributions), output=output)

    def differentiate(self, backward: Backward) -> None:
        """Add nothing, because it is a step of backward, which is never differentiated."""

    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """Return the numbers of the rows that come back."""
        rows = rows_collected(self.within, statistics, traits, layout)
        return Work(collected_numbers=rows * self.output.width)

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Return the bytes of the partitions' sums. A partition sends itself the sums of its own vertices too."""
        return row_bytes(self.output) * (others + 1)


def rows_collected(within: int | None, statistics: Statistics, traits: EngineTraits, layout: Layout) -> float:
    """Return the number of source rows, each counted once for every chunk that reads it.

    Chunks are runs of vertices in an order that a hash made, so the sources of a chunk's edges are as if drawn at
    random.
    """
    chunks = 1 if traits.in_process else chunk_count(statistics.rows_within(within), traits, layout)
    return statistics.sources_within(within) * statistics.degrees().replication(chunks)
