"""Amounts of work, in units to which the time is proportional. `planner.cost.counting` counts those of a step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import add, attrgetter


@dataclass(slots=True)  # not frozen, because frozen instances take longer to make, and planning makes thousands
class Work:
    """Amounts of work. The rate of the same name says how long one unit takes."""

    # Work that runs alone. All but the last does not depend on the size of the graph.
    passes: float = 0.0  # passes over a plan's steps
    steps: float = 0.0  # steps of the Graph Engine, times the waves in which their tasks run
    pipes: float = 0.0  # runs of a stage, times the waves in which their tasks run
    calls: float = 0.0  # operators called on chunks, as many as one thread or worker calls one after the other
    driver_bytes: float = 0.0  # bytes of rows that the driver sends to their vertices in Spark, or takes from there
    # The work of the Graph Engine.
    edges: float = 0.0  # edges along which rows are summed, multiplied or compared
    summed_numbers: float = 0.0  # numbers summed over edges, from a cache or from memory
    far_numbers: float = 0.0  # the part of the summed numbers that comes from memory, for the extra time
    edge_values: float = 0.0  # numbers of edge columns that are computed or summed, once for each operation
    scaled_numbers: float = 0.0  # numbers summed over edges with a scale for each edge, or multiplied along edges
    extreme_numbers: float = 0.0  # numbers compared over edges, for a maximum or minimum
    collected_numbers: float = 0.0  # numbers of the source rows that are brought to chunks
    shuffled_bytes: float = 0.0  # bytes that partitions send one another in Spark's shuffles
    filed_bytes: float = 0.0  # bytes that sums in turn, or Spark for want of storage, write to the disk or read there
    # The work of the DL Engine, and of sending rows to it and back.
    piped_bytes: float = 0.0  # bytes of the columns that stages read and make
    multiply_adds: float = 0.0  # multiplications, each with an addition, in matrix products
    product_numbers: float = 0.0  # numbers in the rows that go into matrix products and come out of them
    numbers: float = 0.0  # numbers that elementwise operators make
    draws: float = 0.0  # random numbers that are drawn
    autograd_numbers: float = 0.0  # numbers that operators make in stages run by autograd, such as all stages on edges
    parameter_numbers: float = 0.0  # numbers of parameters' gradients that partitions or groups of chunks hand in
    spilled_bytes: float = 0.0  # bytes that are written to a file and read back

    def __add__(self, other: Work) -> Work:
        return Work(*map(add, _counts(self), _counts(other)))

    def __mul__(self, factor: float) -> Work:
        return Work(*[count * factor for count in _counts(self)])


def total(works: Iterable[Work]) -> Work:
    """Return the sum of one or more amounts of work.

    >>> total([Work(steps=1), Work(steps=2, edges=5)]).steps
    3
    """
    return Work(*map(sum, zip(*map(_counts, works), strict=True)))


def of_driver(count: float) -> Work:
    """Return the work of rows on one way between the driver and Spark. Its job takes what a pass takes.

    >>> of_driver(256).driver_bytes, of_driver(0) == Work()
    (256, True)

    Args:
        count: The bytes of the rows; 0 if no rows go this way.
    """
    return Work(passes=1.0, driver_bytes=count) if count else Work()


UNITS = tuple(field.name for field in fields(Work))
_counts = attrgetter(*UNITS)

GROUPS = {
    "fixed": UNITS[: UNITS.index("edges")],
    "graph": UNITS[UNITS.index("edges") : UNITS.index("piped_bytes")],
    "neural": UNITS[UNITS.index("piped_bytes") :],
}
"""The units by who does the work. The part named "fixed" runs alone. The Graph Engine and the DL Engine run side by side."""
