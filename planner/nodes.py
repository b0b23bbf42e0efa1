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
from functools import lru_cache, partial
from operator import attrgetter, is_
from typing import Any, ClassVar, Self, TypeVar, cast, dataclass_transform

from planner.spec import EdgeSet, ValueType

_pool: dict[tuple[Any, ...], weakref.ref[Node]] = {}
_kinds: set[type] = set()  # of operators
_lock = threading.Lock()  # two trainers may plan at once
_trained = attrgetter("trained")


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
        elif kind in _kinds:
            keys.append(value)
            nodes.append(value)
        elif kind is tuple:
            keys.append((*_keys(value, nodes),) if value else value)
        else:
            keys.append((kind, value.hex() if kind is float else value))
    return keys


AnyNode = TypeVar("AnyNode", bound="Node")
NodeArgument = Any  # Node | RowCount | int | float | bool | str | None | tuple of these


@dataclass_transform(frozen_default=True, eq_default=False)
def operator(kind: type[AnyNode]) -> type[AnyNode]:
    """A frozen dataclass whose fields `Node.__new__` sets, once for all operators with the same; every one is declared so."""
    made = dataclass(frozen=True, eq=False, slots=True)(kind)
    made.field_names = tuple(field.name for field in fields(made))
    made._read = attrgetter(*made.field_names, "__class__")  # of several, it makes a tuple
    made._write = tuple(getattr(made, name).__set__ for name in (*made.field_names, "children", "identity"))
    made._bind = made.__init__
    _kinds.add(made)
    del made.__init__
    return made


@dataclass(frozen=True, eq=False, init=False)
class Node:
    """The root of all operators: frozen fields, some of them other operators."""

    # Of each node, found as it is interned; no fields. With slots, an attribute is read in a quarter of the time.
    __slots__ = ("__weakref__", "children", "identity", "output", "trained")
    children: ClassVar[tuple[Node, ...]]
    """Direct inputs, in field order, each as often as it is used."""
    output: ClassVar[ValueType]
    """What the operator yields."""
    trained: ClassVar[bool]
    """Whether a gradient of it leads to a parameter that is trained."""
    identity: ClassVar[tuple[Any, ...]]
    """Its class and its fields in order, hashable: no other node has the same."""

    # Of each class of operators; see `operator`.
    field_names: ClassVar[tuple[str, ...]]
    """In order."""
    _read: ClassVar[Callable[[Node], tuple[Any, ...]]]
    """The values of its fields, and its class."""
    _write: ClassVar[tuple[Callable[[Node, Any], None], ...]]
    """What sets each field, its children and its identity; else they are frozen."""
    _bind: ClassVar[Callable[..., None]]
    """Sets its fields from arguments, by place and by name."""
    _yields: ClassVar[Callable[[Any], ValueType]] = attrgetter("type")
    """Its output, from its fields and from what its inputs yield: the field `type`, unless the class says otherwise."""

    # No metaclass: of classes that have one of their own, isinstance takes three times as long, and planning asks it often.
    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """The living operator with the same fields, if there is one."""
        if kwargs or len(args) != len(cls.field_names):
            draft = object.__new__(cls)
            cls._bind(draft, *args, **kwargs)
            args = _values(draft)
        children: list[Node] = []
        key = (cls, *_keys(args, children))
        with _lock:
            known = _pool.get(key)
            if known is not None and (found := known()) is not None:
                return cast(Self, found)
            made = object.__new__(cls)
            for write, value in zip(cls._write, (*args, tuple(children), key), strict=True):
                write(made, value)
            _write_output(made, cls._yields(made))  # reads that of its inputs, which is there: no depth is too much
            _write_trained(made, any(map(_trained, children)) or getattr(made, "trainable", False))
            _pool[key] = weakref.ref(made, partial(_pool.pop, key))
            return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(_values(self))

    def with_children(self, new: Mapping[Node, Node]) -> Node:
        """The same operator over other inputs; `self` where nothing changes."""
        children = self.children
        if all(map(is_, map(new.get, children, children), children)):
            return self
        return type(self)(*replaced(_values(self), new))


_write_output, _write_trained = Node.__dict__["output"].__set__, Node.__dict__["trained"].__set__


def _values(node: Node) -> tuple[Any, ...]:
    """Of its fields, in order."""
    return type(node)._read(node)[:-1]


def replaced(values: tuple[Any, ...], new: Mapping[Node, Node]) -> list[Any]:
    """Values of fields, also in tuples of theirs, with some nodes in place of others."""
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in _kinds:
            found.append(new.get(value, value))
        else:
            found.append((*replaced(value, new),) if kind is tuple and value else value)
    return found


# --- inputs ---------------------------------------------------------------------------------------------------------


@operator
class StaticColumn(Node):
    """A column of the graph that is the same in every epoch, such as "features"."""

    name: str
    type: ValueType


@operator
class EdgeWeight(Node):
    """The weight of each edge of an edge set."""

    edges: EdgeSet
    unit: bool = False  # the graph has no weights: each is 1

    def _yields(self) -> ValueType:
        return ValueType("edge", (), edges=self.edges)


@operator
class Parameter(Node):
    """A parameter or buffer of the model."""

    name: str
    shape: tuple[int, ...]
    trainable: bool = True
    dtype: str = "float32"

    def _yields(self) -> ValueType:
        return ValueType("none", self.shape, self.dtype)


# --- operators of the DL Engine -------------------------------------------------------------------------------------


@operator
class Apply(Node):
    """A tensor operator that treats every row by itself. The subclass says how much the planner knows of it."""

    op: str
    arguments: tuple[NodeArgument, ...]
    keywords: tuple[tuple[str, NodeArgument], ...]
    type: ValueType
    layer: str = ""


@operator
class MatMul(Apply):
    """Rows times a parameter."""


@operator
class Elementwise(Apply):
    """Every number of the output depends on the numbers in its place (or broadcast to it)."""


@operator
class RowWise(Apply):
    """Anything else that keeps rows apart: opaque, may be placed but not opened."""


@operator
class OnParameters(Apply):
    """A value computed from parameters and constants alone: it has no rows."""


@operator
class Dropout(Node):
    """Dropout whose random numbers belong to `key` and the row, whatever a rule does to the plan."""

    x: Node
    p: float
    key: int
    layer: str = ""

    def _yields(self) -> ValueType:
        return self.x.output


@operator
class Scatter(Node):
    """A value of every vertex on each of its edges: those it is the source of, or those it is the destination of."""

    x: Node
    end: str  # "source" or "destination"
    edges: EdgeSet
    layer: str = ""

    def _yields(self) -> ValueType:
        of = self.x.output
        return ValueType("edge", of.shape, of.dtype, self.edges)


@operator
class Aggregate(Node):
    """Messages of the in-edges of a vertex to one value: sum, mean, max or min; zero without in-edges."""

    message: Node
    kind: str
    edges: EdgeSet
    layer: str = ""

    def _yields(self) -> ValueType:
        of = self.message.output
        return ValueType("vertex", of.shape, of.dtype)


@operator
class EdgeSoftmax(Node):
    """Scores normalised over the in-edges of each destination."""

    scores: Node
    edges: EdgeSet
    layer: str = ""

    def _yields(self) -> ValueType:
        return self.scores.output


# --- operators of the Graph Engine; those on edges are in planner.steps ------------------------------------------


@operator
class GraphOperator(Node):
    """What the Graph Engine computes, from columns to a column. Everything else that has rows runs in the DL Engine."""


@operator
class Propagate(GraphOperator):
    """The sum over in-edges of [weight times] the source's row: an aggregate that no parameter takes part in."""

    x: Node
    edges: EdgeSet
    weighted: bool = False
    layer: str = ""

    def _yields(self) -> ValueType:
        return self.x.output


@operator
class Collect(GraphOperator):
    """The rows of a vertex's in-neighbours, brought to where the vertex is; what `Scatter(_, "source")` reads."""

    x: Node
    edges: EdgeSet
    layer: str = ""

    def _yields(self) -> ValueType:
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
    return kind(*map(changes.get, kind.field_names, replaced(values, new) if new else values))


def tensor_arguments(node: Apply) -> tuple[Node, ...]:
    """The row-valued inputs of an operator: parameters and values computed from them are left out."""
    return tuple(child for child in node.children if child.output.rows != "none")
