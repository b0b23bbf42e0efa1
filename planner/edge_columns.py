"""The columns of edges that a model may read besides the weight: attributes, types, and which edges are self-loops.

A column has a name in calls and plans. "edge_attr" and "edge_type" are the columns of the graph's own edges. "edge_loop"
is 1 for a self-loop and 0 for any other edge, in every graph. "edge_order" puts the in-edges of each vertex in order, for
the edge set "graph" alone: see `planner.neighbours`. In an edge set with added self-loops, the value of an added loop stands
in brackets behind the name: "edge_attr[mean]", "edge_type[3]", "edge_loop[2.0]".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from planner.edge_sets import has_added_loops
from planner.spec import Call, EdgeSet, Ref, Spec

EdgeColumnName = Literal["edge_attr", "edge_type", "edge_loop", "edge_order"]
EDGE_COLUMNS: tuple[EdgeColumnName, ...] = ("edge_attr", "edge_type", "edge_loop", "edge_order")
"""The columns, whose values are float32 [edges, width], int64 [edges], and twice float32 [edges, 1]."""

LOOP: EdgeColumnName = "edge_loop"
"""The column that tells self-loops from other edges."""

ORDER: EdgeColumnName = "edge_order"
"""The column that counts the in-edges of each vertex, from 0."""

REDUCTIONS = ("mean", "add", "max", "min")
"""The ways in which an added loop gets its attributes from those of the vertex's in-edges, as in PyG's `fill_value`."""

EDGE_COLUMN = "lotan.edge_column"
"""The operator that reads a column of edges."""
LOOKUP = "aten.index_select.default"
"""The operator that reads rows of a tensor by their numbers."""


@dataclass(frozen=True)
class EdgeData:
    """The columns that a graph's edges have besides the weight."""

    width: int | None = None  # the number of attributes of an edge; None: the edges have none
    typed: bool = False  # True if every edge has a type
    flat: bool = False  # True if attributes are one number for each edge, [edges], which PyG's models get as they are

    @property
    def numbers(self) -> int:
        """How many numbers an edge has: its attributes, and 1 for its type."""
        return (self.width or 0) + self.typed


NO_EDGE_DATA = EdgeData()
"""The edges of a graph have no columns besides the weight."""


def filled(name: str, edges: EdgeSet, fill: float | str) -> str:
    """Return the name of a column of an edge set.

    Args:
        name: one of `EDGE_COLUMNS`.
        edges: the edge set.
        fill: the value of the loops that "self_loops" adds: a number, or for attributes one of `REDUCTIONS`.

    >>> filled("edge_attr", "self_loops", 1.0), filled("edge_attr", "self_loops", "mean"), filled("edge_type", "graph", 1)
    ('edge_attr[1.0]', 'edge_attr[mean]', 'edge_type')
    """
    value = fill if isinstance(fill, str) or name == "edge_type" else float(fill)
    return f"{name}[{value}]" if has_added_loops(edges) else name


def fill_of(name: str) -> tuple[str, float | str | None]:
    """Return the name of the graph's column, and the value of added loops: the inverse of `filled`.

    Raises:
        ValueError: there is no such column.

    >>> fill_of("edge_attr[mean]"), fill_of("edge_type[3]"), fill_of("edge_attr")
    (('edge_attr', 'mean'), ('edge_type', 3.0), ('edge_attr', None))
    """
    base, bracket, rest = name.partition("[")
    if base not in EDGE_COLUMNS or (bracket and not rest.endswith("]")):
        raise ValueError(f"{name!r} is no column of edges; expected one of {', '.join(EDGE_COLUMNS)}")
    if not bracket:
        return base, None
    fill = rest.removesuffix("]")
    return base, fill if base == "edge_attr" and fill in REDUCTIONS else float(fill)


def columns_read(calls: Iterable[Call], edges: EdgeSet) -> tuple[str, ...]:
    """Return the columns of an edge set that calls read, each once."""
    found = [str(call.arguments[0]) for call in calls if call.op == EDGE_COLUMN and call.arguments[1] == edges]
    return tuple(dict.fromkeys(found))


def data_read(spec: Spec) -> EdgeData:
    """Return the columns of edges that a model reads and that a graph must have: attributes and types."""
    reads = {fill_of(str(call.arguments[0]))[0]: call.type for call in spec.calls if call.op == EDGE_COLUMN}
    width = reads["edge_attr"].shape[0] if "edge_attr" in reads else None
    return EdgeData(width, "edge_type" in reads)


def reads_edge_columns(spec: Spec) -> bool:
    """Return True if a model reads a column of edges besides the weight."""
    return any(call.op == EDGE_COLUMN for call in spec.calls)


def number_of_types(spec: Spec) -> tuple[int, str] | None:
    """Return how many types a model distinguishes, and the layer that does. None means that it takes any type.

    A layer that looks up a row of a parameter by the type distinguishes as many types as the parameter has rows. Other
    layers say so themselves: `spec.types`.
    """
    types = {
        call.output
        for call in spec.calls
        if call.op == EDGE_COLUMN and fill_of(str(call.arguments[0]))[0] == "edge_type"
    }
    shapes = {parameter.name: parameter.shape for parameter in spec.parameters}
    shapes |= {call.output: call.type.shape for call in spec.calls if call.type.rows == "none"}
    found = [] if spec.types is None else [spec.types]
    found += [(bound.limit, bound.layer) for bound in spec.bounds if bound.column == "edge_type"]
    for call in spec.calls:
        if call.op == LOOKUP and isinstance(call.arguments[2], Ref) and call.arguments[2].name in types:
            table = call.arguments[0]
            assert isinstance(table, Ref)  # a lookup is made in a parameter, or in what follows from parameters
            found.append((shapes[table.name][0], call.layer))
    return min(found, default=None)
