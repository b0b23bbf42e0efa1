"""Operators of the operator graph: immutable, interned nodes, and the generic machinery of trees with shared parts.

Two nodes with equal fields are one object, so equality is identity, a shared sub-plan is found once, and a walk over a
graph with shared parts is linear in its distinct nodes. Nodes carry semantics only; engines, statistics and costs live
beside them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from operator import attrgetter, is_
from typing import Any, ClassVar

from planner.spec import EdgeSet, ValueType


class Interned(type):
    """Metaclass that returns the living instance with the same fields, if there is one."""

    _pool: ClassVar[weakref.WeakValueDictionary[tuple[Any, ...], Node]] = weakref.WeakValueDictionary()

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        candidate = super().__call__(*args, **kwargs)
        key = (cls, *map(_key, _values(candidate)))
        return Interned._pool.setdefault(key, candidate)


def _key(value: Any) -> Any:
    """A hashable key that tells 1, 1.0 and True apart; nodes are their own keys."""
    kind = type(value)
    if kind is str or isinstance(value, Node):
        return value
    return tuple(map(_key, value)) if kind is tuple else (kind, value)


NodeArgument = Any  # Node | RowCount | int | float | bool | str | None | tuple of these


@dataclass(frozen=True, eq=False)
class Node(metaclass=Interned):
    """The root of all operators: frozen fields, some of them other operators."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(_values(self))

    @property
    def output(self) -> ValueType:
        """What the operator yields."""
        raise TypeError(f"{type(self).__name__} has no output type")  # every concrete operator defines its own

    @cached_property
    def children(self) -> tuple[Node, ...]:
        """Direct inputs, in field order, each as often as it is used."""
        return tuple(_nodes_in(_values(self)))

    def with_children(self, new: Mapping[Node, Node]) -> Node:
        """The same operator over other inputs; `self` where nothing changes."""
        children = self.children
        if all(map(is_, map(new.get, children, children), children)):
            return self
        return type(self)(*(_replaced(value, new) for value in _values(self)))


@cache
def _reader(kind: type[Node]) -> Callable[[Node], Any]:
    return attrgetter(*(field.name for field in fields(kind)), "__class__")


def _values(node: Node) -> tuple[Any, ...]:
    """Of its fields, in order."""
    return _reader(type(node))(node)[:-1]  # type: ignore[no-any-return]  # with the class, there are always several


def _nodes_in(values: Iterable[Any]) -> list[Node]:
    found: list[Node] = []
    for value in values:
        if isinstance(value, Node):
            found.append(value)
        elif isinstance(value, tuple):
            found += _nodes_in(value)
    return found


def _replaced(value: Any, new: Mapping[Node, Node]) -> Any:
    if isinstance(value, Node):
        return new.get(value, value)
    return tuple(_replaced(item, new) for item in value) if isinstance(value, tuple) else value


# --- inputs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StaticColumn(Node):
    """A column of the graph that is the same in every epoch, such as "features"."""

    name: str
    type: ValueType

    @property
    def output(self) -> ValueType:
        return self.type


@dataclass(frozen=True, eq=False)
class EdgeWeight(Node):
    """The weight of each edge of an edge set."""

    edges: EdgeSet
    unit: bool = False  # the graph has no weights: each is 1

    @property
    def output(self) -> ValueType:
        return ValueType("edge", (), edges=self.edges)


@dataclass(frozen=True, eq=False)
class Parameter(Node):
    """A parameter or buffer of the model."""

    name: str
    shape: tuple[int, ...]
    trainable: bool = True
    dtype: str = "float32"

    @property
    def output(self) -> ValueType:
        return ValueType("none", self.shape, self.dtype)


# --- operators of the DL Engine -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Apply(Node):
    """A tensor operator that treats every row by itself. The subclass says how much the planner knows of it."""

    op: str
    arguments: tuple[NodeArgument, ...]
    keywords: tuple[tuple[str, NodeArgument], ...]
    type: ValueType
    layer: str = ""

    @property
    def output(self) -> ValueType:
        return self.type


@dataclass(frozen=True, eq=False)
class MatMul(Apply):
    """Rows times a parameter."""


@dataclass(frozen=True, eq=False)
class Elementwise(Apply):
    """Every number of the output depends on the numbers in its place (or broadcast to it)."""


@dataclass(frozen=True, eq=False)
class RowWise(Apply):
    """Anything else that keeps rows apart: opaque, may be placed but not opened."""


@dataclass(frozen=True, eq=False)
class OnParameters(Apply):
    """A value computed from parameters and constants alone: it has no rows."""


@dataclass(frozen=True, eq=False)
class Dropout(Node):
    """Dropout whose random numbers belong to `key` and the row, whatever a rule does to the plan."""

    x: Node
    p: float
    key: int
    layer: str = ""

    @property
    def output(self) -> ValueType:
        return self.x.output


@dataclass(frozen=True, eq=False)
class Scatter(Node):
    """A value of every vertex on each of its edges: those it is the source of, or those it is the destination of."""

    x: Node
    end: str  # "source" or "destination"
    edges: EdgeSet
    layer: str = ""

    @property
    def output(self) -> ValueType:
        return ValueType("edge", self.x.output.shape, self.x.output.dtype, self.edges)


@dataclass(frozen=True, eq=False)
class Aggregate(Node):
    """Messages of the in-edges of a vertex to one value: sum, mean, max or min; zero without in-edges."""

    message: Node
    kind: str
    edges: EdgeSet
    layer: str = ""

    @property
    def output(self) -> ValueType:
        return ValueType("vertex", self.message.output.shape, self.message.output.dtype)


@dataclass(frozen=True, eq=False)
class EdgeSoftmax(Node):
    """Scores normalised over the in-edges of each destination."""

    scores: Node
    edges: EdgeSet
    layer: str = ""

    @property
    def output(self) -> ValueType:
        return self.scores.output


# --- operators of the Graph Engine; those on edges are in planner.edge_nodes ------------------------------------------


@dataclass(frozen=True, eq=False)
class GraphOperator(Node):
    """What the Graph Engine computes, from columns to a column. Everything else that has rows runs in the DL Engine."""


@dataclass(frozen=True, eq=False)
class Propagate(GraphOperator):
    """The sum over in-edges of [weight times] the source's row: an aggregate that no parameter takes part in."""

    x: Node
    edges: EdgeSet
    weighted: bool = False
    layer: str = ""

    @property
    def output(self) -> ValueType:
        return self.x.output


@dataclass(frozen=True, eq=False)
class Collect(GraphOperator):
    """The rows of a vertex's in-neighbours, brought to where the vertex is; what `Scatter(_, "source")` reads."""

    x: Node
    edges: EdgeSet
    layer: str = ""

    @property
    def output(self) -> ValueType:
        return self.x.output


# --- walks ----------------------------------------------------------------------------------------------------------


def topological(*roots: Node) -> list[Node]:
    """Every distinct node below the roots once, children first, in a stable order; without recursion."""
    order: list[Node] = []
    state: dict[Node, bool] = {}  # absent: unseen, False: open, True: done
    stack = list(reversed(roots))
    while stack:
        node = stack[-1]
        if node not in state:
            state[node] = False
            stack.extend(child for child in reversed(node.children) if child not in state)
            continue
        stack.pop()
        if not state[node]:
            state[node] = True
            order.append(node)
    return order


def transform(root: Node, change: Callable[[Node], Node | None]) -> Node:
    """Rewrite bottom-up: `change` sees every distinct node once, over its rewritten children; None means no change."""
    new: dict[Node, Node] = {}
    for node in topological(root):
        moved = node.with_children(new)
        new[node] = change(moved) or moved
    return new[root]


def consumers(*roots: Node) -> dict[Node, list[Node]]:
    """For every node below the roots, the distinct nodes that read it, in topological order."""
    readers: dict[Node, list[Node]] = {}
    for node in topological(*roots):
        readers.setdefault(node, [])
        for child in dict.fromkeys(node.children):
            readers[child].append(node)
    return readers


def tensor_arguments(node: Apply) -> tuple[Node, ...]:
    """The row-valued inputs of an operator: parameters and values computed from them are left out."""
    return tuple(child for child in node.children if child.output.rows != "none")
