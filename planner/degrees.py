"""How many edges begin, or end, at the vertices of a graph: in classes of degrees, as few as the largest one has bits.

What the Planner asks of them: quantiles; in how many of P partitions a vertex is read (R in equations 4-6 of the Lotan
report), which for vertices that a hash places follows from their degrees; and how many vertices lie within so many hops of
some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, expm1, log1p


@dataclass(frozen=True)
class Degrees:
    """Counts of vertices by degree.

    Class 0 has the vertices without any edge, class k those with 2^(k-1) to 2^k - 1 of them.
    """

    vertices: tuple[int, ...]  # of each class
    edges: tuple[int, ...]  # of those vertices together

    @classmethod
    def of_classes(cls, classes: Iterable[tuple[int, int, int]], vertices: int) -> Degrees:
        """Of counts by class, added up where a class comes several times.

        Args:
            classes: number of a class above 0, its vertices and its edges; in any order.
            vertices: of the graph; those in no class have no edges.
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
        """Where nothing is known but the means: equally many for each vertex, as far as that goes."""
        low, more = divmod(edges, max(1, vertices))
        groups = ((low, vertices - more), (low + 1, more))
        return cls.of_classes(((d.bit_length(), n, d * n) for d, n in groups if d and n), vertices)

    def quantile(self, share: float) -> float:
        """The mean degree of the class in which the vertex lies that so large a share of all has no higher degree than.

        >>> Degrees((5, 3, 0, 2), (0, 3, 0, 14)).quantile(0.5), Degrees((5, 3, 0, 2), (0, 3, 0, 14)).quantile(0.9)
        (0.0, 7.0)
        """
        wanted, seen = share * sum(self.vertices), 0
        for count, edges in zip(self.vertices, self.edges, strict=True):
            seen += count
            if count and seen >= wanted:
                return edges / count
        return 0.0

    def replication(self, partitions: int) -> float:
        """The mean number of partitions in which a vertex is expected to have an edge's other end.

        With the ends placed by a hash, a vertex of degree d is in P (1 - (1 - 1/P)^d) of P partitions.

        >>> Degrees((0, 4), (0, 4)).replication(8), round(Degrees((2, 0, 0, 2), (0, 0, 0, 12)).replication(2), 3)
        (1.0, 0.984)
        """
        if partitions <= 1:
            return sum(self.vertices[1:]) / max(1, sum(self.vertices))
        none = log1p(-1 / partitions)  # of the chance that a given edge ends elsewhere
        rows = zip(self.vertices, self.edges, strict=True)
        reached = (count * -expm1(none * edges / count) for count, edges in rows if count)
        return partitions * sum(reached) / max(1, sum(self.vertices))


def within_hops(share: float, out_degrees: Degrees, in_edges: Sequence[int]) -> Iterator[tuple[float, float]]:
    """How many vertices are expected within 0, 1, 2 ... hops of some, and how many edges end there.

    A vertex of out-degree d is within k + 1 hops if it is one of these, or one of its edges ends within k hops: with a share q
    of all edges, as if each were drawn by itself, that has the chance 1 - (1 - q)^d. So hubs are reached first, and where
    many edges begin at those where many end, few vertices have most edges.

    >>> steps = within_hops(0.1, Degrees.even(1000, 4000), (0, 0, 0, 4000))
    >>> [(round(rows), round(edges)) for rows, edges in (next(steps), next(steps))]
    [(100, 400), (410, 1638)]

    Args:
        share: of all vertices, drawn.
        out_degrees: of the graph.
        in_edges: edges that end at the vertices of each class of `out_degrees`.
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
