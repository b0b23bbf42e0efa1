"""Propagate, which sums rows along edges."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.edge_sets import reversed_set
from planner.estimate import row_bytes
from planner.layout import Layout
from planner.physical import Column, Plan
from planner.spec import EdgeSet
from planner.statistics import Statistics
from planner.steps.backward import Backward, is_constant
from planner.steps.step import AtSources, InputStep
from planner.traits import EngineTraits
from planner.work import Work

CACHE_BYTES = 24 << 20
"""The bytes of source rows that the processors' caches hold. A smaller column takes less time for each number. A column
of ten times the size is mostly read from memory."""


@dataclass(frozen=True)
class PropagateStep(InputStep):
    """output[v] = sum over in-edges (u, v) of [weight *] input[u]; with reverse, over out-edges (v, u) instead.

    With `combine`, messages for one destination are summed on their own side before they cross a partition boundary. In
    forward this is always so. In backward it is Reverse Graph Backpropagation, and False is the naive way.
    """

    input: str
    output: Column
    edges: EdgeSet
    weighted: bool = False
    reverse: bool = False
    combine: bool = True
    within: int | None = None  # level up to which the edges end that it sums over; None: all

    @property
    def hop_away(self) -> tuple[str, ...]:
        """The name of its input."""
        return (self.input,)

    @property
    def read_whole(self) -> tuple[str, ...]:
        """The name of its input."""
        return (self.input,)

    @property
    def label(self) -> str:
        """The step's input, edges, flags and output."""
        flags = ["reverse"] * self.reverse + ["weighted"] * self.weighted + ["naive"] * (not self.combine)
        within = [] if self.within is None else [f"within={self.within}"]
        return f"Propagate({', '.join([self.input, self.edges, *flags, *within])}) -> {self.output.name}"

    def differentiate(self, backward: Backward) -> None:
        """Add a propagate over the reverse graph, under the same vertex placement."""
        gradient = None if is_constant(self.input) else backward.gradient(self.output)
        if gradient is None:
            return
        column = backward.column(self.input, self.output.shape)
        step = replace(self, input=gradient, output=column, reverse=True, combine=backward.rgb)
        backward.add(step, of=self.input)

    def turned(self) -> PropagateStep:
        """Return the same sum over the edge set with both ends exchanged."""
        return replace(self, edges=reversed_set(self.edges), reverse=not self.reverse)

    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """Return one sum for each edge and number. Numbers that come from memory, and not from a cache, are also "far".

        Where partitions are read in turn, the input is put into files, and every partition reads its own rows and those
        from which it has an edge.
        """
        edges = statistics.edge_count(self.edges, self.within)
        numbers = edges * self.output.width
        far = numbers * _far(statistics.sources_within(self.within) * row_bytes(self.output))
        read = 0.0
        if layout.in_turn:
            others = statistics.degrees().replication(layout.partitions) * (1 - 1 / layout.partitions)
            written_and_read = 2 + others  # by its own partition, and by others
            read = written_and_read * statistics.sources_within(self.within) * row_bytes(self.output)
        return Work(edges=edges, summed_numbers=numbers, far_numbers=far, filed_bytes=read)

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Return the bytes of one row for each other partition that has an edge from the source.

        Forward, the row is the source's. In reverse, it is the sum that the partition returns.
        """
        return row_bytes(self.output) * others if layout.shuffled else 0.0


def _far(size: int) -> float:
    """Return the share of a column of so many bytes that is in no cache.

    >>> _far(1000), _far(96 << 20)
    (0.0, 0.75)
    """
    return max(0.0, 1 - CACHE_BYTES / max(1, size))
