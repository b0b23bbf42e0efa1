"""Collect: bring the rows of in-neighbours to where a vertex is. Gather, its adjoint, sums per vertex what comes back."""

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
    """Bring, for every vertex, its in-edges and the rows of `columns` at their sources to where the vertex is."""

    columns: tuple[str, ...]
    edges: EdgeSet
    output: str  # name of the collection
    within: int | None = None  # the level up to which vertices have theirs collected

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that it collects."""
        return self.columns

    @property
    def makes(self) -> tuple[str, ...]:
        """The name of the collection."""
        return (self.output,)

    @property
    def columns_made(self) -> tuple[Column, ...]:
        """None: a collection is no column."""
        return ()

    @property
    def hop_away(self) -> tuple[str, ...]:
        """The columns that it collects."""
        return self.columns

    @property
    def label(self) -> str:
        """What it collects."""
        within = [] if self.within is None else [f"within={self.within}"]
        return f"Collect({', '.join([*self.columns, self.edges, *within])}) -> neighbourhoods"

    def up_to(self, level: int) -> Self:
        """The neighbourhoods of the vertices up to a level."""
        return replace(self, within=level)

    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """The same step under other names."""
        return replace(self, columns=tuple(map(to, self.columns)), output=to(self.output))

    def differentiate(self, backward: Backward) -> None:
        """Add a Gather for each collected column of which a stage returned contributions."""
        for name in self.columns:
            contributions = backward.contributions.get((self.output, name))
            if contributions is not None:
                column = backward.column(name, contributions.shape)
                backward.add(GatherStep(contributions.name, column, backward.rgb, self.within), of=name)

    def rows(self, statistics: Statistics) -> int:
        """The edges along which it collects."""
        return statistics.edge_count(self.edges, self.within)

    def bytes(self, statistics: Statistics, plan: Plan) -> int:
        """Bytes of its edges, and of the rows at their sources."""
        width = sum(row_bytes(plan.columns[name]) for name in self.columns)
        return self.rows(statistics) * (CSR_BYTES_PER_EDGE + width)

    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """The numbers of the rows that are collected."""
        rows = rows_collected(self.within, statistics, traits, layout)
        return Work(collected_numbers=rows * sum(plan.columns[name].width for name in self.columns))

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Nothing: rows are sent when a stage reads them."""
        return 0.0


@dataclass(frozen=True)
class GatherStep(ColumnStep):
    """The adjoint of Collect: sum per vertex what the stage returned for it as a source. combine=False: per edge (naive)."""

    contributions: str
    output: Column
    combine: bool = True
    within: int | None = None  # the level up to which edges end that contributed

    @property
    def reads(self) -> tuple[str, ...]:
        """The contributions."""
        return (self.contributions,)

    @property
    def label(self) -> str:
        """What it sums."""
        within = [] if self.within is None else [f"within={self.within}"]
        naive = [] if self.combine else ["naive"]
        return f"Gather({', '.join([self.contributions, *naive, *within])}) -> {self.output.name}"

    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """The same step under other names."""
        output = replace(self.output, name=to(self.output.name))
        return replace(self, contributions=to(self.contributions), output=output)

    def differentiate(self, backward: Backward) -> None:
        """Add nothing: it is a step of backward, which nobody differentiates."""

    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """The numbers of the rows that come back."""
        rows = rows_collected(self.within, statistics, traits, layout)
        return Work(collected_numbers=rows * self.output.width)

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Sums of all partitions; one sends its own vertices' sums the same way."""
        return row_bytes(self.output) * (others + 1)


def rows_collected(within: int | None, statistics: Statistics, traits: EngineTraits, layout: Layout) -> float:
    """Rows of sources, each as often as chunks have it: these are runs of vertices that a hash has put in order."""
    chunks = 1 if traits.in_process else chunk_count(statistics.rows_within(within), traits, layout)
    return statistics.sources_within(within) * statistics.degrees().replication(chunks)
