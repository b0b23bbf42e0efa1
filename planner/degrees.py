"""The degrees of a graph's vertices, counted in classes. There are at most as many classes as the largest degree has bits.

The Planner takes from them:
- quantiles of the degrees;
- the number of partitions that read a vertex (R in equations 4-6 of the Lotan report), if a hash places the vertices;
- the number of vertices within some hops of a set of vertices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, expm1, log1p


@dataclass(frozen=True)
class Degrees:
    """Counts of vertices by degree.

    Class 0 has the vertices without edges. Class k has those with 2^(k-1) to 2^k - 1 edges.
    """

    vertices: tuple[int, ...]  # number of vertices in each class
    edges: tuple[int, ...]  # number of edges of the vertices in each class

    @classmethod
    def of_classes(cls, classes: Iterable[tuple[int, int, int]], vertices: int) -> Degrees:
        """Make counts from entries by class. Entries of the same class are added.

        Args:
            classes: Entries of (number of a class above 0, its vertices, its edges), in any order.
            vertices: The number of vertices of the graph. Those in no class have no edges.
        """
        counts, ends = Counter[int](), Counter[int]()
        for number, count, edges in classes:
            counts[number] += count
            ends[number] += edges
        numbers = range(1, max(counts, default=0) + 1)
        without = vertices - counts.total()
        return cls((without, *(counts[number] for number in numbers)), (0, *(ends[number] for number in numbers)))

    @classmethod
    def even(cls, vertices: int, edges: int) -> Degrees:
        """Make counts for a graph of which only the mean degree is known: all degrees are as equal as possible."""
        low, more = divmod(edges, max(1, vertices))
        groups = ((low, vertices - more), (low + 1, more))
        return cls.of_classes(((d.bit_length(), n, d * n) for d, n in groups if d and n), vertices)

    def quantile(self, share: float) -> float:
        """Return the mean degree of the class that holds a quantile of the degrees, such as the median for 0.5.

        >>> Degrees((5, 3, 0, 2), (0, 3, 0, 14)).quantile(0.5), Degrees((5, 3, 0, 2), (0, 3, 0, 14)).quantile(0.9)
        (0.0, 7.0)
        """
        wanted, seen = share * sum(self.vertices), 0
        for count, edges in zip(self.vertices, self.edges, strict=True):
            seen += count
            if count and seen >= wanted:
                return edges / count
        return 0.0

    @property
    def greatest(self) -> float:
        """The mean degree of the last class, which has the vertex of the greatest degree.

        >>> Degrees((5, 3, 0, 2), (0, 3, 0, 14)).greatest
        7.0
        """
        return max(
            (edges / count for count, edges in zip(self.vertices, self.edges, strict=True) if count), default=0.0
        )

    @property
    def mean_of_ends(self) -> float:
        """The mean over all edges of the degree of their ends, if all vertices of a class have the same degree.

        >>> Degrees((5, 2, 0, 2), (0, 2, 0, 14)).mean_of_ends
        6.25
        """
        squares = (edges * edges / count for count, edges in zip(self.vertices, self.edges, strict=True) if count)
        return sum(squares) / max(1, sum(self.edges))

    def replication(self, partitions: int) -> float:
        """Return the mean number of partitions in which a vertex is expected to have the other end of an edge.

        If a hash places these ends, a vertex of degree d has one in P (1 - (1 - 1/P)^d) of P partitions.

        >>> Degrees((0, 4), (0, 4)).replication(8), round(Degrees((2, 0, 0, 2), (0, 0, 0, 12)).replication(2), 3)
        (1.0, 0.984)
        """
        if partitions <= 1:
            return sum(self.vertices[1:]) / max(1, sum(self.vertices))
        none = log1p(-1 / partitions)  # log of the chance that an edge ends in another partition
        rows = zip(self.vertices, self.edges, strict=True)
        reached = (count * -expm1(none * edges / count) for count, edges in rows if count)
        return partitions * sum(reached) / max(1, sum(self.vertices))


def within_hops(share: float, out_degrees: Degrees, in_edges: Sequence[int]) -> Iterator[tuple[float, float]]:
    """Yield the vertices expected within 0, 1, 2 ... hops of a drawn set of vertices, and the edges that end there.

    A vertex of out-degree d is within k + 1 hops if it was drawn, or if one of its edges ends within k hops. If a share
    q of all edges ends there, and edges are independent, the second has the chance 1 - (1 - q)^d. So hubs are reached
    first. If many edges begin at vertices where many edges end, few vertices have most of the edges.

    >>> steps = within_hops(0.1, Degrees.even(1000, 4000), (0, 0, 0, 4000))
    >>> [(round(rows), round(edges)) for rows, edges in (next(steps), next(steps))]
    [(100, 400), (410, 1638)]

    Args:
        share: The share of all vertices that is drawn.
        out_degrees: The out-degrees of the graph.
        in_edges: The number of edges that end at the vertices of each class of `out_degrees`.
    """
    count, edges = sum(out_degrees.vertices), max(1, sum(out_degrees.edges))
    rows, ends = share * count, share * sum(in_edges)
    classes = [of for of in zip(out_degrees.vertices, out_degrees.edges, in_edges, strict=True) if of[0]]
    while True:
        yield rows, ends
        none = log1p(-min(ends / edges, 1 - 1e-12))
        chances = [1 - (1 - share) * exp(none * out / vertices) for vertices, out, _ in classes]
        rows = sum(chance * vertices for chance, (vertices, _, _) in zip(chances, classes, strict=True))
        ends = sum(chance * into for chance, (_, _, into) in zip(chances, classes, strict=True))
