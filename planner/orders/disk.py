"""The disk that partitions lie on, and the seconds in which the sets of an order are made ready."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

SET_SECONDS = 0.002
"""The seconds of a set of partitions, whatever its size, to make programs and columns. Measured on one core, as those below."""

SET_EDGE_SECONDS = 0.25e-6
"""The seconds of an edge of a set: it is read, sorted, and put where batches are sampled from."""

LINK_SET_EDGE_SECONDS = 0.5e-6
"""The same for links, of which each is also looked up among the edges, so that its batch leaves it out."""

LINK_SECONDS = 2.7e-6
"""The seconds of a link of a set: it is read, ordered, gets negatives, and its ends are found among those of its batch."""


@dataclass(frozen=True)
class Disk:
    """The seconds that a disk takes to move bytes, and to begin with it."""

    bytes_per_second: float
    access_seconds: float  # until a read or write at another place has moved its first block
    block: int  # bytes; fewer take as long

    def seconds(self, moved: int, accesses: int) -> float:
        """Return the seconds of reads and writes.

        Args:
            moved: The bytes of all of them.
            accesses: The number of times that one begins at another place.

        >>> Disk(1e6, 0.01, 4096).seconds(2_000_000, accesses=50)
        2.5
        """
        return moved / self.bytes_per_second + accesses * self.access_seconds

    @property
    def rounded(self) -> Disk:
        """The same with powers of two, so that two measurements of a disk seldom lead to other partitions."""
        return Disk(rounded(self.bytes_per_second), rounded(self.access_seconds), self.block)


def rounded(number: float) -> float:
    """Return the nearest power of two to a measured or estimated number, which is not negative.

    >>> rounded(700.0), rounded(0.0)
    (512.0, 0.0)
    """
    return 2.0 ** round(log2(number)) if number else 0.0


def making_seconds(sets: int, share: float, edges: int, of_edge: float) -> float:
    """Return the estimated seconds in which the sets of an epoch are made.

    Args:
        sets: The number of sets.
        share: The share of the partitions that are in a set.
        edges: The edges of the graph along which messages pass; 0 if the model reads none.
        of_edge: The seconds of an edge: `SET_EDGE_SECONDS` or `LINK_SET_EDGE_SECONDS`.

    >>> making_seconds(sets=2, share=0.5, edges=2_000_000, of_edge=SET_EDGE_SECONDS)
    0.254
    """
    return round(sets * (SET_SECONDS + of_edge * share**2 * edges), 6)
