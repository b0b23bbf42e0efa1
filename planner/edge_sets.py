"""The names of edge sets.

"graph" has the edges as given. In "self_loops", exactly one self-loop per vertex replaces the graph's own self-loops.
"reversed" and "reversed_self_loops" have the edges of these two with both ends exchanged. Each may be kept to the edges of
one type, whose number follows: "graph:3", "self_loops:3". Such a set is a *relation*. It has a topology of its own, so
that the sums over all relations together take time linear in all edges.
"""

from __future__ import annotations

from typing import Literal, get_args

Base = Literal["graph", "self_loops", "reversed", "reversed_self_loops"]
BASES: tuple[Base, ...] = get_args(Base)

_REVERSED: dict[Base, Base] = {
    "graph": "reversed",
    "self_loops": "reversed_self_loops",
    "reversed": "graph",
    "reversed_self_loops": "self_loops",
}


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
    base = edges.partition(":")[0]
    for known in BASES:
        if known == base:
            return known
    raise ValueError(f"{edges!r} is no edge set")


def reversed_set(edges: str) -> str:
    """Return the edge set that has the same edges with both ends exchanged.

    >>> reversed_set("graph"), reversed_set("reversed_self_loops:3")
    ('reversed', 'self_loops:3')
    """
    return edge_set(_REVERSED[base_of(edges)], relation_of(edges))


def is_reversed(edges: str) -> bool:
    """Return True if both ends of a set's edges are exchanged."""
    return base_of(edges) in ("reversed", "reversed_self_loops")


def has_added_loops(edges: str) -> bool:
    """Return True if an edge set has one self-loop per vertex in place of the graph's own."""
    return base_of(edges) in ("self_loops", "reversed_self_loops")


def relation_of(edges: str) -> int | None:
    """Return the type of edges that a set is kept to, or None if it has edges of all types.

    >>> relation_of("self_loops:3"), relation_of("graph")
    (3, None)
    """
    _, colon, number = edges.partition(":")
    return int(number) if colon else None


def with_loops(edges: str) -> str:
    """Return the set with one self-loop per vertex that belongs to a set.

    >>> with_loops("graph:3"), with_loops("reversed")
    ('self_loops:3', 'reversed_self_loops')
    """
    return edge_set("reversed_self_loops" if is_reversed(edges) else "self_loops", relation_of(edges))


def as_given(edges: str) -> str:
    """Return the set of edges as given that a set is made of.

    >>> as_given("self_loops:3"), as_given("reversed_self_loops")
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
