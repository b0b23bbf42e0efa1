"""The operators of the operator graph: immutable, interned nodes, and generic walks over graphs of them.

Two nodes with equal fields are one object. So equality is identity, a shared sub-plan is found once, and a walk takes
time linear in the number of distinct nodes. Nodes carry semantics only. Engines, statistics and costs lie elsewhere.
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
_kinds: set[type] = set()  # the classes of operators
_lock = threading.Lock()  # two trainers may plan at the same time
_trained = attrgetter("trained")


def _keys(values: tuple[Any, ...], nodes: list[Node]) -> list[Any]:
    """Return hashable keys of field values, which tell 1, 1.0 and True apart, and 0.0 and -0.0. A node is its own key.

    Args:
        values: The values of a node's fields.
        nodes: A list to which the nodes among the values are added.
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
    """Make a class of operators: a frozen dataclass whose fields are set by `Node.__new__`.

    Every operator is declared with this decorator. Operators with equal fields are one object.
    """
    made = dataclass(frozen=True, eq=False, slots=True)(kind)
    made.field_names = tuple(field.name for field in fields(made))
    made._read = attrgetter(*made.field_names, "__class__")  # with more than one name, attrgetter returns a tuple
    made._write = tuple(getattr(made, name).__set__ for name in (*made.field_names, "children", "identity"))
    made._bind = made.__init__
    _kinds.add(made)
    del made.__init__
    return made


@dataclass(frozen=True, eq=False, init=False)
class Node:
    """The base class of all operators. Its fields are frozen, and some of them are other operators."""

    # The attributes below are no fields: they are set when a node is interned. Slots make reading them four times as
    # fast.
    __slots__ = ("__weakref__", "children", "identity", "output", "trained")
    children: ClassVar[tuple[Node, ...]]
    """The operators that this one reads, in the order of the fields, each as often as it is read."""
    output: ClassVar[ValueType]
    """The type of the operator's output."""
    trained: ClassVar[bool]
    """True if the node is a trained parameter, or one is below it, so that a gradient has to reach it."""
    identity: ClassVar[tuple[Any, ...]]
    """The operator's class and its fields in order, as a hashable tuple that no other node has."""

    # The attributes below belong to a class of operators. The decorator `operator` sets them.
    field_names: ClassVar[tuple[str, ...]]
    """The names of the fields, in order."""
    _read: ClassVar[Callable[[Node], tuple[Any, ...]]]
    """A function that returns the values of a node's fields, followed by its class."""
    _write: ClassVar[tuple[Callable[[Node, Any], None], ...]]
    """Functions that set each field, the children and the identity of a node, which is frozen otherwise."""
    _bind: ClassVar[Callable[..., None]]
    """A function that sets the fields of a node from positional and keyword arguments."""
    _yields: ClassVar[Callable[[Any], ValueType]] = attrgetter("type")
    """A function that returns the type of a node's output. By default this is the field `type`."""

    # There is no metaclass, because isinstance would take three times as long, and planning calls it often.
    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Return the living operator with the same fields, or make one."""
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
            _write_output(made, cls._yields(made))  # reads only the inputs' outputs, so no graph is too deep
            _write_trained(made, any(map(_trained, children)) or getattr(made, "trainable", False))
            _pool[key] = weakref.ref(made, partial(_pool.pop, key))
            return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(_values(self))

    def with_children(self, new: Mapping[Node, Node]) -> Node:
        """Return the same operator over other inputs, or `self` if no input changes."""
        children = self.children
        if all(map(is_, map(new.get, children, children), children)):
            return self
        return type(self)(*replaced(_values(self), new))


_write_output, _write_trained = Node.__dict__["output"].__set__, Node.__dict__["trained"].__set__


def _values(node: Node) -> tuple[Any, ...]:
    """Return the values of a node's fields, in order."""
    return type(node)._read(node)[:-1]


def replaced(values: tuple[Any, ...], new: Mapping[Node, Node]) -> list[Any]:
    """Return field values with some nodes replaced by others, also inside tuples."""
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
    unit: bool = False  # True if the graph has no weights, so that each is 1

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
    """A tensor operator that treats each row by itself. The subclass says how much the planner knows of it."""

    op: str
    arguments: tuple[NodeArgument, ...]
    keywords: tuple[tuple[str, NodeArgument], ...]
    type: ValueType
    layer: str = ""


@operator
class MatMul(Apply):
    """A product of rows and a parameter."""


@operator
class Elementwise(Apply):
    """An operator each of whose output numbers depends on the numbers in its place, or broadcast to it."""


@operator
class RowWise(Apply):
    """Any other operator that keeps rows apart. The planner may place it, but does not look inside."""


@operator
class OnParameters(Apply):
    """A value computed from parameters and constants alone. It has no rows."""


@operator
class Dropout(Node):
    """Dropout whose random numbers depend on `key` and the row, so that no rule changes them."""

    x: Node
    p: float
    key: int
    layer: str = ""

    def _yields(self) -> ValueType:
        return self.x.output


@operator
class Scatter(Node):
    """A copy of each vertex's value onto the edges that it is the source of, or the destination of."""

    x: Node
    end: str  # "source" or "destination"
    edges: EdgeSet
    layer: str = ""

    def _yields(self) -> ValueType:
        of = self.x.output
        return ValueType("edge", of.shape, of.dtype, self.edges)


@operator
class Aggregate(Node):
    """The sum, mean, maximum or minimum of the messages of a vertex's in-edges; zero for a vertex without in-edges."""

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
    """An operator that the Graph Engine runs. All other operators with rows run in the DL Engine."""


@operator
class Propagate(GraphOperator):
    """The sum over in-edges of the source's row [times the edge's weight]. No parameter takes part in it."""

    x: Node
    edges: EdgeSet
    weighted: bool = False
    layer: str = ""

    def _yields(self) -> ValueType:
        return self.x.output


@operator
class Collect(GraphOperator):
    """The rows of a vertex's in-neighbours, brought to where the vertex is. A `Scatter` from sources reads it."""

    x: Node
    edges: EdgeSet
    layer: str = ""

    def _yields(self) -> ValueType:
        return self.x.output


# --- walks ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)  # the phases of a plan ask for the same graphs
def topological(*roots: Node) -> tuple[Node, ...]:
    """Return every distinct node at or below the roots once, children first, in a stable order. It does not recurse."""
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
    """Rewrite a graph bottom-up.

    Args:
        root: The root of the graph.
        change: A function of a node whose children are rewritten already. It returns another node, or None for no
            change. It is called once for each distinct node.
        order: The nodes of the graph, children first, if known.
    """
    new: dict[Node, Node] = {}
    for node in order or topological(root):
        moved = node.with_children(new)
        new[node] = change(moved) or moved
    return new[root]


def consumers(order: Iterable[Node]) -> dict[Node, list[Node]]:
    """Return, for every node of a graph, the distinct nodes that read it, in topological order.

    Args:
        order: All nodes of the graph, children first.
    """
    readers: dict[Node, list[Node]] = {}
    for node in order:
        readers[node] = []
        for child in dict.fromkeys(node.children):
            readers[child].append(node)
    return readers


def altered(node: AnyNode, new: Mapping[Node, Node] | None = None, **changes: Any) -> AnyNode:
    """Return the same operator with some fields changed, as `dataclasses.replace` does, but faster.

    Args:
        node: The operator.
        new: Replacements for input nodes, by the node that is replaced.
        changes: New values of fields, by name.
    """
    kind, values = type(node), _values(node)
    return kind(*map(changes.get, kind.field_names, replaced(values, new) if new else values))


def tensor_arguments(node: Apply) -> tuple[Node, ...]:
    """Return an operator's inputs that have rows. Parameters and values computed from parameters alone have none."""
    return tuple(child for child in node.children if child.output.rows != "none")
