"""The limits of a block's size, and so of the number of blocks: an array of the JVM has fewer than 2^31 elements."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from lotan.errors import ConfigurationError
from planner.estimate import widest_column
from planner.explain.sizes import size
from planner.physical import Plan
from planner.statistics import Statistics

LARGEST = 2**31 - 1
"""The limit for a partition: bytes of a column, which travel as one array, and edges, which int32 numbers."""

MARGIN = 1.01
"""The ratio of the largest to the mean partition, since vertices are placed by a hash."""


@dataclass(frozen=True)
class _Demand:
    """Data that must fit into partitions."""

    what: str
    total: int  # bytes or edges
    unit: str

    @property
    def partitions(self) -> int:
        return max(1, ceil(MARGIN * self.total / LARGEST))

    def share(self, partitions: int) -> str:
        """Return the share of one partition in words, for errors."""
        each = ceil(self.total / partitions)
        return f"{size(each)}" if self.unit == "bytes" else f"{each:,} {self.unit}"


def least_partitions(plan: Plan, statistics: Statistics) -> int:
    """Return the smallest number of partitions that the graph fits into."""
    return _demand(plan, statistics).partitions


def check_partitions(partitions: int, plan: Plan, statistics: Statistics) -> None:
    """Refuse blocks that would be too large, before they are made.

    Raises:
        ConfigurationError: If there are too few partitions; the message has a number that is enough.
    """
    demand = _demand(plan, statistics)
    if partitions < demand.partitions:
        limit = size(LARGEST) if demand.unit == "bytes" else f"{LARGEST:,} {demand.unit}"
        raise ConfigurationError(
            f"partitions is {partitions}: {demand.what} would be {demand.share(partitions)} in each, and a block holds at most "
            f"{limit}; give at least {demand.partitions} partitions, or leave them out"
        )


def _demand(plan: Plan, statistics: Statistics) -> _Demand:
    """Return the data that needs the most partitions. An edge set may have a self-loop at every vertex beside the edges."""
    name, total = widest_column(plan, statistics)
    edges = max(statistics.edge_count("graph"), statistics.edge_count("self_loops"))
    demands = _Demand(f"the column {name!r}", total, "bytes"), _Demand("the graph's edges", edges, "edges")
    return max(demands, key=lambda demand: demand.partitions)
