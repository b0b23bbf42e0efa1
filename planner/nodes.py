"""Operators of the operator graph: immutable, interned nodes, and the generic machinery of trees with shared parts.

Two nodes with equal fields are one object, so equality is identity, a shared sub-plan is found once, and a walk over a
graph with shared parts is linear in its distinct nodes. Nodes carry semantics only; engines, statistics and costs live
beside them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from operator import attrgetter, is_
from typing import Any, ClassVar, TypeVar

from planner.spec import EdgeSet, ValueType


class Interned(type):
    """Metaclass that returns the living instance with the same fields, if there is one.

    A plan of 64 layers makes thousands of nodes, most of them new. So what runs for each asks `type(kind) is Interned`, which
    takes a third of the time of an isinstance: that looks for a method of the metaclass first.
    """

    _pool: ClassVar[weakref.WeakValueDictionary[tuple[Any, ...], Node]] = weakref.WeakValueDictionary()
    _lock: ClassVar[threading.Lock] = threading.Lock()  # two trainers may plan at once

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        whole = not kwargs and len(args) == len(cls.__match_args__)  # type: ignore[attr-defined]  # a dataclass's fields
        values = args if whole else _values(super().__call__(*args, **kwargs))
        children: list[Node] = []
        key = (cls, *_keys(values, children))
        with Interned._lock:
            found = Interned._pool.get(key)
            if found is not None:
                return found
            made: Any = object.__new__(cls)  # type: ignore[arg-type]
            for write, value in zip(
                _writers(cls), (*values, tuple(children), key), strict=True
            ):  # else they are frozen
                write(made, value)
            _write_trained(made, any(map(_trained, children)) or getattr(made, "trainable", False))
            Interned._pool[key] = made
            return made


_trained = attrgetter("trained")


@cache
def _writers(kind: type[Node]) -> tuple[Callable[[Node, Any], None], ...]:
    """What sets each field of an operator, in order, its children and its identity."""
    return tuple(getattr(kind, name).__set__ for name in (*field_names(kind), "children", "identity"))


def _keys(values: tuple[Any, ...], nodes: list[Node]) -> list[Any]:
    """Hashable keys that tell 1, 1.0 and True apart, and 0.0 and -0.0; nodes are their own keys.

    Args:
        values: of fields.
        nodes: gets those among them.
    """
    keys: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is str or kind is ValueType:
            keys.append(value)
        elif type(kind) is Interned:
            keys.append(value)
            nodes.append(value)
        elif kind is tuple:
            keys.append((*_keys(value, nodes),) if value else value)
        else:
            keys.append((kind, value.hex() if kind is float else value))
    return keys


NodeArgument = Any  # Node | RowCount | int | float | bool | str | None | tuple of these


@dataclass(frozen=True, eq=False)
class Node(metaclass=Interned):
    """The root of all operators: frozen fields, some of them other operators."""

    # Of each node, found as it is interned; no fields. With slots, an attribute is read in a quarter of the time.
    __slots__ = ("__weakref__", "children", "identity", "trained")
    children: ClassVar[tuple[Node, ...]]
    """Direct inputs, in field order, each as often as it is used."""
    trained: ClassVar[bool]
    """Whether a gradient of it leads to a parameter that is trained."""
    identity: ClassVar[tuple[Any, ...]]
    """Its class and its fields in order, hashable: no other node has the same."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(_values(self))

    @property
    def output(self) -> ValueType:
        """What the operator yields."""
        raise TypeError(f"{type(self).__name__} has no output type")  # every concrete operator defines its own

    def with_children(self, new: Mapping[Node, Node]) -> Node:
        """The same operator over other inputs; `self` where nothing changes."""
        children = self.children
        if all(map(is_, map(new.get, children, children), children)):
            return self
        return type(self)(*replaced(_values(self), new))


_write_trained = Node.__dict__["trained"].__set__
AnyNode = TypeVar("AnyNode", bound=Node)


@cache
def field_names(kind: type[Node]) -> tuple[str, ...]:
    """Of an operator, in order."""
    return tuple(field.name for field in fields(kind))


@cache
def _reader(kind: type[Node]) -> Callable[[Node], Any]:
    return attrgetter(*field_names(kind), "__class__")


def _values(node: Node) -> tuple[Any, ...]:
    """Of its fields, in order."""
    return _reader(type(node))(node)[:-1]  # type: ignore[no-any-return]  # with the class, there are always several


def replaced(values: tuple[Any, ...], new: Mapping[Node, Node]) -> list[Any]:
    """Values of fields, also in tuples of theirs, with some nodes in place of others."""
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if type(kind) is Interned:
            found.append(new.get(value, value))
        else:
            found.append((*replaced(value, new),) if kind is tuple and value else value)
    return found


# --- inputs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class StaticColumn(Node):
    """A column of the graph that is the same in every epoch, such as "features"."""

    name: str
    type: ValueType

    @property
    def output(self) -> ValueType:
        return self.type


@dataclass(frozen=True, eq=False, slots=True)
class EdgeWeight(Node):
    """The weight of each edge of an edge set."""

    edges: EdgeSet
    unit: bool = False  # the graph has no weights: each is 1

    @property
    def output(self) -> ValueType:
        return ValueType("edge", (), edges=self.edges)


@dataclass(frozen=True, eq=False, slots=True)
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


@dataclass(frozen=True, eq=False, slots=True)
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


@dataclass(frozen=True, eq=False, slots=True)
class MatMul(Apply):
    """Rows times a parameter."""


@dataclass(frozen=True, eq=False, slots=True)
class Elementwise(Apply):
    """Every number of the output depends on the numbers in its place (or broadcast to it)."""


@dataclass(frozen=True, eq=False, slots=True)
class RowWise(Apply):
    """Anything else that keeps rows apart: opaque, may be placed but not opened."""


@dataclass(frozen=True, eq=False, slots=True)
class OnParameters(Apply):
    """A value computed from parameters and constants alone: it has no rows."""


@dataclass(frozen=True, eq=False, slots=True)
class Dropout(Node):
    """Dropout whose random numbers belong to `key` and the row, whatever a rule does to the plan."""

    x: Node
    p: float
    key: int
    layer: str = ""

    @property
    def output(self) -> ValueType:
        return self.x.output


@dataclass(frozen=True, eq=False, slots=True)
class Scatter(Node):
    """A value of every vertex on each of its edges: those it is the source of, or those it is the destination of."""

    x: Node
    end: str  # "source" or "destination"
    edges: EdgeSet
    layer: str = ""

    @property
    def output(self) -> ValueType:
        of = self.x.output
        return ValueType("edge", of.shape, of.dtype, self.edges)


@dataclass(frozen=True, eq=False, slots=True)
class Aggregate(Node):
    """Messages of the in-edges of a vertex to one value: sum, mean, max or min; zero without in-edges."""

    message: Node
    kind: str
    edges: EdgeSet
    layer: str = ""

    @property
    def output(self) -> ValueType:
        of = self.message.output
        return ValueType("vertex", of.shape, of.dtype)


@dataclass(frozen=True, eq=False, slots=True)
class EdgeSoftmax(Node):
    """Scores normalised over the in-edges of each destination."""

    scores: Node
    edges: EdgeSet
    layer: str = ""

    @property
    def output(self) -> ValueType:
        return self.scores.output


# --- operators of the Graph Engine; those on edges are in planner.edge_nodes ------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class GraphOperator(Node):
    """What the Graph Engine computes, from columns to a column. Everything else that has rows runs in the DL Engine."""


@dataclass(frozen=True, eq=False, slots=True)
class Propagate(GraphOperator):
    """The sum over in-edges of [weight times] the source's row: an aggregate that no parameter takes part in."""

    x: Node
    edges: EdgeSet
    weighted: bool = False
    layer: str = ""

    @property
    def output(self) -> ValueType:
        return self.x.output


@dataclass(frozen=True, eq=False, slots=True)
class Collect(GraphOperator):
    """The rows of a vertex's in-neighbours, brought to where the vertex is; what `Scatter(_, "source")` reads."""

    x: Node
    edges: EdgeSet
    layer: str = ""

    @property
    def output(self) -> ValueType:
        return self.x.output


# --- walks ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)  # the phases of a plan ask for the same ones
def topological(*roots: Node) -> tuple[Node, ...]:
    """Every distinct node below the roots once, children first, in a stable order; without recursion."""
    done: dict[Node, None] = {}
    stack = list(reversed(roots))
    while stack:
        node, height = stack[-1], len(stack)
        if node not in done:
            for child in reversed(node.children):
                if child not in done:
                    stack.append(child)
        if len(stack) == height:
            done[stack.pop()] = None
    return tuple(done)


def transform(root: Node, change: Callable[[Node], Node | None], order: Sequence[Node] | None = None) -> Node:
    """Rewrite bottom-up: `change` sees every distinct node once, over its rewritten children; None means no change.

    Args:
        root: of the graph.
        change: what becomes of a node.
        order: its nodes, children first, where that is known.
    """
    new: dict[Node, Node] = {}
    for node in order or topological(root):
        moved = node.with_children(new)
        new[node] = change(moved) or moved
    return new[root]


def consumers(order: Iterable[Node]) -> dict[Node, list[Node]]:
    """For every node of a graph, the distinct nodes that read it, in topological order.

    Args:
        order: all of them, children first.
    """
    readers: dict[Node, list[Node]] = {}
    for node in order:
        readers[node] = []
        for child in dict.fromkeys(node.children):
            readers[child].append(node)
    return readers


def altered(node: AnyNode, new: Mapping[Node, Node] | None = None, **changes: Any) -> AnyNode:
    """The same operator with some fields changed: `dataclasses.replace` in less time, which rules have.

    Args:
        node: the operator.
        new: other inputs, by those that they take the place of.
        changes: other values of fields.
    """
    kind, values = type(node), _values(node)
    return kind(*map(changes.get, field_names(kind), replaced(values, new) if new else values))


def tensor_arguments(node: Apply) -> tuple[Node, ...]:
    """The row-valued inputs of an operator: parameters and values computed from them are left out."""
    return tuple(child for child in node.children if child.output.rows != "none")
