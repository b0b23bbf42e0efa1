"""The names of edge sets.

"graph" has the edges as given. In "self_loops", exactly one self-loop per vertex replaces the graph's own self-loops. Each
may be kept to the edges of one type, whose number follows: "graph:3", "self_loops:3". Such a set is a *relation*. It has a
topology of its own, so that the sums over all relations together take time linear in all edges.
"""

from __future__ import annotations

from typing import Literal

Base = Literal["graph", "self_loops"]
BASES: tuple[Base, ...] = ("graph", "self_loops")


def edge_set(base: Base, relation: int | None = None) -> str:
    """Return the name of an edge set.

    >>> edge_set("graph"), edge_set("self_loops", 3)
    ('graph', 'self_loops:3')
    """
    return base if relation is None else f"{base}:{relation}"


def base_of(edges: str) -> Base:
    """Return the name without the relation.

    >>> base_of("self_loops:3")
    'self_loops'
    """
    return "self_loops" if edges.partition(":")[0] == "self_loops" else "graph"


def relation_of(edges: str) -> int | None:
    """Return the type of edges that a set is kept to, or None if it has edges of all types.

    >>> relation_of("self_loops:3"), relation_of("graph")
    (3, None)
    """
    _, colon, number = edges.partition(":")
    return int(number) if colon else None


def with_loops(edges: str) -> str:
    """Return the set with one self-loop per vertex that belongs to a set.

    >>> with_loops("graph:3"), with_loops("self_loops")
    ('self_loops:3', 'self_loops')
    """
    return edge_set("self_loops", relation_of(edges))


def as_given(edges: str) -> str:
    """Return the set of edges as given that belongs to a set.

    >>> as_given("self_loops:3"), as_given("graph")
    ('graph:3', 'graph')
    """
    return edge_set("graph", relation_of(edges))


def is_edge_set(name: object) -> bool:
    """Return True for the name of an edge set.

    >>> [is_edge_set(name) for name in ("graph", "self_loops:12", "graph:", "graph:-1", "edges", None)]
    [True, True, False, False, False, False]
    """
    if not isinstance(name, str):
        return False
    base, colon, number = name.partition(":")
    return base in BASES and (not colon or (number.isascii() and number.isdigit()))
