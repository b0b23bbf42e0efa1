"""Amounts of work, by what they are proportional to. `planner.cost.counting` finds those of a step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import add, attrgetter


@dataclass(slots=True)  # not frozen: that takes longer to make, and planning makes thousands
class Work:
    """Counts; a rate of the same name says how long one takes."""

    # What takes its time whatever the size of the graph.
    passes: float = 0.0  # walks over a plan's steps
    steps: float = 0.0  # of the Graph Engine, times the waves in which their tasks run
    pipes: float = 0.0  # runs of a stage, times those waves
    calls: float = 0.0  # of operators on a chunk, as many as one thread or worker makes one after the other
    # What the Graph Engine does.
    edges: float = 0.0  # along which rows are summed, multiplied or compared
    summed_numbers: float = 0.0  # over edges, wherever their source rows lie
    far_numbers: float = 0.0  # of these, those of rows that have to come from memory: what they take more
    edge_values: float = 0.0  # numbers of edge columns that are computed or summed, once for each operation
    scaled_numbers: float = 0.0  # summed over edges with a scale for each edge, or multiplied along them
    extreme_numbers: float = 0.0  # compared over edges
    collected_numbers: float = 0.0  # of source rows that are brought to chunks
    shuffled_bytes: float = 0.0  # that cross from one executor to others
    # What the DL Engine does, and what it takes to get there.
    piped_bytes: float = 0.0  # of columns that stages read or make
    multiply_adds: float = 0.0  # of matrix products
    product_numbers: float = 0.0  # of the rows that go into matrix products and come out of them
    numbers: float = 0.0  # that elementwise operators make
    draws: float = 0.0  # random numbers
    autograd_numbers: float = 0.0  # made by operators of stages that autograd runs, those that read edges among them
    parameter_numbers: float = 0.0  # of gradients that partitions, or groups of chunks, hand in
    spilled_bytes: float = 0.0  # that workers write to a file and read again

    def __add__(self, other: Work) -> Work:
        return Work(*map(add, _counts(self), _counts(other)))

    def __mul__(self, factor: float) -> Work:
        return Work(*[count * factor for count in _counts(self)])


def total(works: Iterable[Work]) -> Work:
    """Of several, of which there is one at least.

    >>> total([Work(steps=1), Work(steps=2, edges=5)]).steps
    3
    """
    return Work(*map(sum, zip(*map(_counts, works), strict=True)))


UNITS = tuple(field.name for field in fields(Work))
_counts = attrgetter(*UNITS)

GROUPS = {
    "fixed": UNITS[: UNITS.index("edges")],
    "graph": UNITS[UNITS.index("edges") : UNITS.index("piped_bytes")],
    "neural": UNITS[UNITS.index("piped_bytes") :],
}
"""Units by who does the work: the fixed part runs by itself, the Graph Engine's beside the DL Engine's."""
