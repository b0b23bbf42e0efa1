"""The types of vertices of a graph that has several, and the relations between them.

All vertices lie in one table. The features of a type of width w are its first w columns, and what lies beyond is 0. The last
column holds the number of the vertex's type. The type of an edge is the number of its relation, and the attributes of a
relation's edges are their first columns in the same way. So such a graph is laid out, moved and checked as any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SHOWN = 6
"""The most relations that `words` names."""

Relation = tuple[str, str, str]
"""The type of the sources, the name, and the type of the destinations."""


@dataclass(frozen=True)
class VertexTypes:
    """The types of vertices and the relations of a graph.

    >>> types = VertexTypes(("author", "paper"), (2, 3), (("author", "writes", "paper"),), "paper")
    >>> types.width, types.ends(0), types.said(0)
    (4, (0, 1), 'author -> writes -> paper')
    """

    names: tuple[str, ...]  # the types of vertices
    widths: tuple[int, ...]  # the number of features of each type; 0 for none
    relations: tuple[Relation, ...]  # by the type of the edges
    task: str  # the type of vertices that have labels and splits
    edge_widths: tuple[
        int, ...
    ] = ()  # the number of attributes of each relation's edges, 0 for none; () if none have any
    # the relations whose attributes were given as one number an edge, [edges], which PyG's models get as they are
    flat: tuple[Relation, ...] = field(default=(), compare=False)

    @property
    def width(self) -> int:
        """The width of the table's features, in which the number of the type comes last."""
        return max(self.widths) + 1

    @property
    def type_column(self) -> int:
        """The position of the number of the type among the features."""
        return max(self.widths)

    @property
    def target(self) -> int:
        """The number of the type that has labels and splits."""
        return self.names.index(self.task)

    def ends(self, relation: int) -> tuple[int, int]:
        """Return the numbers of the types of a relation's sources and destinations."""
        source, _, destination = self.relations[relation]
        return self.names.index(source), self.names.index(destination)

    def attributes(self, relation: int) -> int:
        """Return the number of attributes of a relation's edges.

        >>> VertexTypes(("a",), (2,), (("a", "to", "a"), ("a", "by", "a")), "a", (0, 3)).attributes(1)
        3
        """
        return self.edge_widths[relation] if self.edge_widths else 0

    @property
    def words(self) -> str:
        """The types and the first relations in words, and what their one table costs.

        >>> VertexTypes(("author", "paper"), (2, 3), (("author", "writes", "paper"),), "paper").words
        'author, paper in one table, whose every row is computed for each; graph:0 is author -> writes -> paper'
        """
        shown = [f"graph:{number} is {self.said(number)}" for number in range(len(self.relations))]
        more = [f"and {len(shown) - SHOWN} more"] * (len(shown) > SHOWN)
        table = f"{', '.join(self.names)} in one table, whose every row is computed for each"
        return "; ".join([table, ", ".join([*shown[:SHOWN], *more])])

    def said(self, relation: int) -> str:
        """Return a relation in words."""
        return " -> ".join(self.relations[relation])
