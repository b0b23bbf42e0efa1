"""The operators of the operator graph: immutable, interned nodes, and generic walks over graphs of them.

Two nodes with equal fields are one object. So equality is identity, a shared sub-plan is found once, and a walk takes
time linear in the number of distinct nodes. Nodes carry semantics only. Engines, statistics and costs lie elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, is_
from typing import Any, ClassVar, Self, TypeVar, cast, dataclass_transform
from weakref import WeakValueDictionary

from planner.spec import Distribution, EdgeSet, ValueType

_pool: WeakValueDictionary[tuple[Any, ...], Node] = WeakValueDictionary()
_is_trained = attrgetter("trained")
_lock = threading.Lock()  # two trainers may plan at the same time

AnyNode = TypeVar("AnyNode", bound="Node")
NodeArgument = Any  # Node | RowCount | int | float | bool | str | None | tuple of these


@dataclass_transform(frozen_default=True, eq_default=False)
def operator(kind: type[AnyNode]) -> type[AnyNode]:
    """Make a class of operators: a frozen dataclass whose equal instances are one object.

    Every operator is declared with this decorator.
    """
    made = dataclass(frozen=True, eq=False, slots=True)(kind)
    made.fill = made.__init__
    del made.__init__  # `Node.__new__` sets the fields, once for all equal operators
    return made


class Node:
    """The base class of all operators. Its fields are frozen, and some of them are other operators."""

    # Slots take less time to read, and less for the garbage collector to walk. There is no metaclass, because isinstance
    # takes three times as long for classes that have one.
    __slots__ = ("__weakref__", "children", "identity", "output", "trained")

    # The attributes below follow from the fields and from the inputs' attributes, which are set already. So no graph is
    # too deep for them.
    children: ClassVar[tuple[Node, ...]]
    """The operators that this one reads, in the order of the fields, each as often as it is read."""
    output: ClassVar[ValueType]
    """The type of the operator's output."""
    trained: ClassVar[bool]
    """True if the node is a trained parameter, or one is below it, so that a gradient has to reach it."""
    identity: ClassVar[tuple[Any, ...]]
    """The operator's class and its fields in order, as a hashable tuple that no other node has."""
    __match_args__: ClassVar[tuple[str, ...]]
    """The names of its fields, in order."""
    fill: ClassVar[Callable[..., None]]
    """Sets the fields of a new operator."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Return the living operator with the same fields if there is one, else a new one."""
        if kwargs or len(args) != len(cls.__match_args__):
            draft = object.__new__(cls)
            cls.fill(draft, *args, **kwargs)
            args = (*draft.values,)  # with defaults, in order
        children: list[Node] = []
        identity = (cls, *_keys(args, children))
        with _lock:
            found = _pool.get(identity)
            if found is None:
                found = _pool[identity] = cls._made(args, (*children,), identity)
        return cast(Self, found)

    @classmethod
    def _made(cls, values: Sequence[Any], children: tuple[Node, ...], identity: tuple[Any, ...]) -> Self:
        """Return a new operator. The lock is held meanwhile, so `_yields` must not make another one."""
        made = object.__new__(cls)
        cls.fill(made, *values)
        put = object.__setattr__
        put(made, "identity", identity)
        put(made, "children", children)
        put(made, "output", made._yields())
        put(made, "trained", getattr(made, "trainable", False) or any(map(_is_trained, children)))
        return made

    def _yields(self) -> ValueType:
        """Return the type of the output. By default this is the field `type`."""
        type: ValueType = getattr(self, "type")  # noqa: B009  # some operators have no such field
        return type

    @property
    def values(self) -> Sequence[Any]:
        """The values of its fields, in order."""
        return [getattr(self, name) for name in self.__match_args__]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.values,)

    def with_children(self, new: Mapping[Node, Node]) -> Node:
        """Return the same operator over other inputs, or `self` if no input changes."""
        for child in self.children:
            if new.get(child, child) is not child:
                return type(self)(*replaced(self.values, new))
        return self


def _keys(values: Sequence[Any], nodes: list[Node]) -> list[Any]:
    """Return hashable keys of field values, which tell 1, 1.0 and True apart, and 0.0 and -0.0. A node is its own key.

    Args:
        values: The values of a node's fields.
        nodes: A list to which the nodes among the values are added.
    """
    keys: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is str or kind is ValueType:  # most are, so they are asked about first
            keys.append(value)
        elif kind is tuple:
            inside = _keys(value, nodes)
            keys.append(value if all(map(is_, inside, value)) else (*inside,))  # one tuple for both, if it can be
        elif isinstance(value, Node):
            nodes.append(value)
            keys.append(value)
        else:
            keys.append((kind, value.hex() if kind is float else value))
    return keys


def replaced(values: Sequence[Any], new: Mapping[Node, Node]) -> list[Any]:
    """Return field values with some nodes replaced by others, also inside tuples."""
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is tuple:
            found.append((*replaced(value, new),))
        elif kind is not str and isinstance(value, Node):
            found.append(new.get(value, value))
        else:
            found.append(value)
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
class EdgeColumn(Node):
    """A column of the edges of an edge set, such as attributes or types. `planner.edge_columns` explains its name."""

    name: str
    edges: EdgeSet
    shape: tuple[int, ...]
    dtype: str = "float32"

    def _yields(self) -> ValueType:
        return ValueType("edge", self.shape, self.dtype, self.edges)


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
class Draw(Node):
    """An operator whose random numbers depend on its `key` and the row, so that no rule changes them."""


@operator
class Dropout(Draw):
    """Dropout, which sets numbers to zero and scales the others."""

    x: Node
    p: float
    key: int
    layer: str = ""

    def _yields(self) -> ValueType:
        return self.x.output


@operator
class Random(Draw):
    """Random numbers in the shape of a value with rows, see `planner.spec.DISTRIBUTIONS`. They have no gradient."""

    x: Node
    kind: Distribution
    p: float  # the probability of "chance"; 0 for the other kinds
    key: int
    layer: str = ""

    def _yields(self) -> ValueType:
        of = self.x.output
        return ValueType(of.rows, of.shape, "float32", of.edges)


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
    """Return the same operator with some fields changed.

    Args:
        node: The operator.
        new: Replacements for input nodes, by the node that is replaced.
        changes: New values of fields, by name.
    """
    values = replaced(node.values, new) if new else [*node.values]
    for name, value in changes.items():
        values[node.__match_args__.index(name)] = value
    return type(node)(*values)


def tensor_arguments(node: Apply) -> tuple[Node, ...]:
    """Return an operator's inputs that have rows. Parameters and values computed from parameters alone have none."""
    return tuple(child for child in node.children if child.output.rows != "none")
