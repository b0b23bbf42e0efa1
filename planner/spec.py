"""The Planner's input: a traced model as a flat list of calls, free of torch and Spark.

`lotan.tracing` writes a `Spec`, and `planner.build` reads it. A call is one tensor operator, spelled as in PyTorch's
operator library ("aten.linear.default"), or one of the graph operators below, such as "lotan.scatter". A
`planner.physical.Stage` is made of the same calls, so a worker runs what was traced.

Graph operators and their arguments:

    lotan.scatter(x, end, edges)        vertex rows -> edge rows; `end` is "source" or "destination"
    lotan.aggregate(m, kind, edges)     edge rows -> vertex rows by destination; `kind` in AGGREGATES, or a quantile such as
                                        "quantile:0.5:lower" (`quantile_of`); zero without in-edges
    lotan.edge_softmax(s, edges)        edge rows -> edge rows, exp(s - max) / (sum + SOFTMAX_EPSILON); max and sum are
                                        taken over the in-edges of each destination
    lotan.edge_weight(edges)            the weight of each edge, shape (); 1 if the graph has no weights
    lotan.edge_column(name, edges)      the attributes or the type of each edge, or whether it is a self-loop: see
                                        `planner.edge_columns`
    lotan.vertex_input(name)            a static column of the graph, by its name in STATIC_COLUMNS
    lotan.learned_rows(parameter [, t]) the rows of a parameter that has one for each vertex, or each one of type t
    lotan.total(x, kind)                vertex rows -> vertex rows, all alike: a reduction over all vertices; `kind` in TOTALS
    lotan.total_products(x, y)          vertex rows -> vertex rows, all alike: the sum over all vertices of x[v] y[v]^T
    lotan.times_total(x, m)             x[v] m, for rows m [k, n] that are all alike
    lotan.greatest(x)                   vertex rows -> vertex rows, all alike: the greatest of each number; no gradient
    lotan.group_total(x, g, n, kind)    vertex rows -> vertex rows [n, *shape], all alike: the sum over the vertices of each
                                        group, or its greatest numbers, which have no gradient; g[v] is the group of v, and
                                        `kind` is "sum" or "max"
    lotan.group_rows(t, g)              t[g[v]], for rows t [n, *shape] that are all alike, or a parameter t
    lotan.chunk_sum(x[, y])             (stages only) one row for a chunk: the sum of its rows of x, or of x[v] y[v]^T
    lotan.chunk_sum(x, g, n)            (stages only) one row [n, *shape] for a chunk: the sums of its rows of x by group
    lotan.chunk_max(x[, g, n])          (stages only) the same of the greatest numbers; -inf for a group without rows
    lotan.track(x, buffer)              x; the sum of its rows over all vertices is handed in as the buffer's gradient
    lotan.neighbour_rows, lotan.neighbour_sequence, lotan.neighbour_attention
                                        in-edges in their order, or each beside all others: see `planner.neighbours`
    lotan.recurrent(x, s, kind, w)      one layer of a recurrent network along the second dimension of rows x [steps, channels];
                                        `kind` is "lstm", "gru", "rnn_tanh" or "rnn_relu", s has the states before the first
                                        step, or nothing for zeros, and w the weights: see `lotan.stages.recurrent`
    lotan.dropout(x, p, key)            (stages only) dropout whose random numbers depend on `key` and the row
    lotan.shown(x, p)                   1 with the probability p for each vertex, else 0: the labels that a model sees
    lotan.random(x, kind, p, key)       (stages only) random numbers of a kind in DISTRIBUTIONS, in the shape of x

A dtype among a call's arguments is a string: "torch.float32".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any, Literal, NamedTuple

from planner.edge_sets import is_edge_set, relation_of
from planner.vertex_types import VertexTypes

Rows = Literal["vertex", "edge", "none"]
"""The things that the first dimension of a value counts. "none" is for values computed from parameters and constants
alone."""

EdgeSet = str
"""The name of an edge set, see `planner.edge_sets`.

"graph" has the edges as given. In "self_loops", exactly one self-loop per vertex replaces the graph's own self-loops.
It has the weight of a self-loop that was there, else 1. Of several, it is the one of the greatest weight; among equal
weights, of the greatest type; then of the greatest attributes, compared one after the other. PyG keeps the last one, but
tables have no order. "reversed" and "reversed_self_loops" have the edges of these two with both ends exchanged.
"graph:3" and "self_loops:3" are the same of the edges of type 3 alone.
"""

Ability = Literal["edge_columns", "edge_data", "extremes", "learned_rows", "sparse_rows"]
"""An ability that some Graph Engines lack.

"edge_columns": hold values of edges and compute with them. "edge_data": give the columns of `planner.edge_columns` to
stages.
"extremes": take a maximum or minimum over in-edges.
"learned_rows": read a parameter that has a row for each vertex as a column, and hand in its gradient.
"sparse_rows": give the features to stages as their non-zero numbers.
"""

AGGREGATES = ("sum", "mean", "max", "min")

INTERPOLATIONS = ("lower", "higher", "midpoint", "linear")
"""The ways to take a quantile between two messages."""


def quantile_of(kind: object) -> tuple[float, str] | None:
    """Return the quantile, from 0 to 1, and the interpolation that a kind of aggregate names, or None for another kind.

    >>> quantile_of("quantile:0.25:linear"), quantile_of("quantile:2:linear"), quantile_of("mean")
    ((0.25, 'linear'), None, None)
    """
    name, _, rest = str(kind).partition(":")
    number, _, interpolation = rest.partition(":")
    try:
        q = float(number)
    except ValueError:
        return None
    return (q, interpolation) if name == "quantile" and interpolation in INTERPOLATIONS and 0 <= q <= 1 else None


def is_aggregate(kind: object) -> bool:
    """Return True for a kind in AGGREGATES, and for a quantile."""
    return kind in AGGREGATES or quantile_of(kind) is not None


TotalKind = Literal["sum", "mean", "sample", "moments", "max"]
"""The kinds of reductions over all vertices.

- sum, mean: as in torch.
- sample: the sum divided by the number of vertices less one, as in the unbiased variance.
- moments: the mean and the biased variance of each number of a row, in a last dimension of size 2.
- max: the greatest of each number, which has no gradient. Only stages take its parts, so no model names it.
"""

TOTALS: tuple[TotalKind, ...] = ("sum", "mean", "sample", "moments")


def divisor(kind: TotalKind, vertices: int) -> int:
    """Return the number by which a reduction divides the sum of all rows.

    >>> divisor("sum", 10), divisor("sample", 10), divisor("moments", 10)
    (1, 9, 10)
    """
    return {"sum": 1, "sample": vertices - 1}.get(kind, vertices)


STATIC_COLUMNS = ("features", "label", "split", "vertex_weight", "in_degree", "gcn_scale@graph", "gcn_scale@self_loops")
"""The graph's own columns.

`in_degree` is float32 and at least 1. `gcn_scale` is (weighted in-degree)^-1/2, or 0 where that is not finite. Both are there
for relations too, such as `in_degree@graph:3` and `gcn_scale@self_loops:3`: see `is_static_column`.
"""


def is_static_column(name: object) -> bool:
    """Return True for the name of one of the graph's own columns.

    >>> is_static_column("in_degree"), is_static_column("gcn_scale@self_loops:3"), is_static_column("in_degree@edges")
    (True, True, False)
    """
    if name in STATIC_COLUMNS:
        return True
    kind, _, edges = str(name).partition("@")
    return kind in ("in_degree", "gcn_scale") and is_edge_set(edges) and relation_of(edges) is not None


def degree_column(edges: EdgeSet) -> str:
    """Return the name of the column of in-degrees of an edge set.

    >>> degree_column("graph"), degree_column("graph:3")
    ('in_degree', 'in_degree@graph:3')
    """
    return "in_degree" if edges == "graph" else f"in_degree@{edges}"


def edges_of_column(name: str) -> EdgeSet | None:
    """Return the edge set from which a static column follows, or None for a column that the graph is given with.

    >>> edges_of_column("in_degree"), edges_of_column("gcn_scale@self_loops:3"), edges_of_column("features")
    ('graph', 'self_loops:3', None)
    """
    kind, _, edges = name.partition("@")
    return (edges or "graph") if kind in ("in_degree", "gcn_scale") else None


SOFTMAX_EPSILON = 1e-16
"""The term added to the sum in a softmax, as in torch_geometric.utils.softmax."""

SPLITS = ("train", "val", "test")
"""The names of the splits. The static column `split` holds a position in this tuple for each vertex, or -1 for no split."""


@dataclass(frozen=True)
class Ref:
    """An argument that is a value, by name: the output of an earlier call, an input or a parameter."""

    name: str


@dataclass(frozen=True)
class RowCount:
    """An argument that stands for the number of rows of the call's own output, which is not fixed."""


Argument = Ref | RowCount | int | float | bool | str | None | tuple["Argument", ...]


class ValueType(NamedTuple):  # planning a deep model makes, hashes and compares tens of thousands of these
    """The type of a value: rows of `shape` each, or one tensor of `shape` if rows is "none"."""

    rows: Rows
    shape: tuple[int, ...]
    dtype: str = "float32"
    edges: EdgeSet | None = None  # for rows="edge": the edge set that the rows belong to

    @property
    def width(self) -> int:
        """The number of numbers in a row."""
        width = 1
        for size in self.shape:
            width *= size
        return width


DROPOUT = "aten.dropout.default"
"""The name of torch's dropout, as a model calls it. In a stage it is "lotan.dropout"."""
DRAWS = ("lotan.dropout", "lotan.random")
"""The names of the operators of a stage that draw random numbers."""

Distribution = Literal["uniform", "normal", "bernoulli", "chance"]
"""The kinds of random numbers.

- uniform: from 0 to 1, without 1.
- normal: of mean 0 and variance 1.
- bernoulli: 1 with the probability that the operator's input holds, else 0.
- chance: 1 with a probability that is the same for all numbers, else 0.
"""

DISTRIBUTIONS: Mapping[str, Distribution] = {
    "aten.rand_like.default": "uniform",
    "aten.randn_like.default": "normal",
    "aten.bernoulli.default": "bernoulli",
    "aten.bernoulli.p": "chance",
}
"""The distributions that torch's operators draw from, as a model calls them."""

SHOWN, SHOWN_KEY = "lotan.shown", 2**31 - 1
"""The operator that draws whose labels a model sees, and the key of its draws. The loss leaves the same vertices out."""

TOTAL, TRACK = "lotan.total", "lotan.track"
LEARNED_ROWS = "lotan.learned_rows"
TOTAL_PRODUCTS, TIMES_TOTAL, CHUNK_SUM = "lotan.total_products", "lotan.times_total", "lotan.chunk_sum"
GREATEST, GROUP_TOTAL, GROUP_ROWS, CHUNK_MAX = (
    "lotan.greatest",
    "lotan.group_total",
    "lotan.group_rows",
    "lotan.chunk_max",
)
RECURRENT = "lotan.recurrent"
REDUCING = (TOTAL, TOTAL_PRODUCTS, GREATEST, GROUP_TOTAL)
"""The calls of a model that read the rows of all vertices."""
OF_CHUNKS = (CHUNK_SUM, CHUNK_MAX)
"""The calls of a stage that make one row for a chunk."""

PRODUCTS = ("linear", "mm", "addmm", "matmul")
"""The names of the operators that multiply by a matrix."""


@lru_cache(maxsize=1024)  # a deep model asks for tens of thousands of calls, but has few operators
def operator_name(op: str) -> str:
    """Return the name of an operator without its library and overload.

    >>> operator_name("aten.add.Tensor"), operator_name("lotan.scatter"), operator_name("add")
    ('add', 'scatter', 'add')
    """
    return op.split(".")[1] if "." in op else op


def _names(arguments: tuple[Argument, ...]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, Ref):
            yield argument.name
        elif isinstance(argument, tuple):
            yield from _names(argument)


def instead(argument: Any, read: Mapping[str, Argument]) -> Any:
    """Return an argument in which every value named in `read` is replaced by the argument it is mapped to.

    Tuples of arguments are replaced item by item.

    >>> instead((Ref("x"), 2, (Ref("y"),)), {"y": Ref("z")})
    (Ref(name='x'), 2, (Ref(name='z'),))
    """
    if isinstance(argument, tuple):
        return tuple(instead(item, read) for item in argument)
    return read.get(argument.name, argument) if isinstance(argument, Ref) else argument


@dataclass(frozen=True)
class Call:
    """A call of one operator: `output = op(*arguments, **keywords)`."""

    output: str
    op: str
    arguments: tuple[Argument, ...]
    type: ValueType
    keywords: tuple[tuple[str, Argument], ...] = ()
    layer: str = ""  # qualified name of the module that made the call, for explain and errors
    where: str = ""  # place of the user's line, such as "file.py:12"
    draw: str = ""  # a name that calls with the same random numbers share; "" for numbers of its own

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The names of the values that the call reads, in order, each as often as it is read."""
        return tuple(_names((*self.arguments, *(value for _, value in self.keywords))))


@dataclass(frozen=True)
class ParameterSpec:
    """A parameter or buffer of the model. `trainable` is its requires_grad."""

    name: str
    shape: tuple[int, ...]
    trainable: bool = True
    dtype: str = "float32"


@dataclass(frozen=True)
class Tracked:
    """The running statistics of a layer that normalises by the mean and variance of all vertices.

    A training pass hands in the sums over all vertices of the rows' mean and biased variance, as the gradients of the two
    buffers. As all rows are alike, these are the mean and the variance times the number of vertices.
    """

    layer: str  # qualified name of the layer
    mean: str  # name of the buffer of running means
    variance: str  # name of the buffer of running variances
    momentum: float | None  # weight of the new value; None: the mean of all values so far
    counter: str | None = None  # name of the buffer that counts steps, if there is one


@dataclass(frozen=True)
class Bound:
    """A column of the graph whose numbers a layer takes as 0, 1, ..., such as types, without their fractions."""

    column: str  # "features", "edge_attr" or "edge_type"
    place: int  # the position in a row
    limit: int  # how many different numbers the layer takes
    layer: str  # qualified name of the layer


def width_of(further: Sequence[tuple[str, tuple[int, ...]]]) -> int:
    """Return the numbers that tensors have together in a row.

    >>> width_of([("aux", ()), ("rows", (3,))])
    4
    """
    return sum(prod(shape) for _, shape in further)


@dataclass(frozen=True)
class Spec:
    """A model traced in one mode, training or evaluation. Its inputs with rows are "features" and learned rows."""

    width: int  # number of features of a vertex
    parameters: tuple[ParameterSpec, ...]
    calls: tuple[Call, ...]  # in execution order
    output: str  # name of the call whose rows, one per vertex, are the model's output (logits)
    tracked: tuple[Tracked, ...] = ()  # running statistics that a training step changes, in the order of their layers
    # the fewest types of edges that a layer tells apart by comparing, and the layer's name; None: no layer says so
    types: tuple[int, str] | None = None
    bounds: tuple[Bound, ...] = ()  # columns whose numbers layers take as types or classes
    vertex_types: VertexTypes | None = None  # those of the graph that the model was traced for; None: it has one type
    # the types of vertices over whose rows a layer takes variances, by their numbers, each with the layer's name
    varied: tuple[tuple[int, str], ...] = ()
    groups: int | None = None  # the groups of vertices of that graph, numbered in the last column of the features
    sees_labels: bool = False  # True if the last of the features is the class of training vertices, and -1 elsewhere
    # what the output rows hold behind the model's output, for the loss alone: by name, with the shape of a row
    further: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def totals(self) -> tuple[Call, ...]:
        """The calls that reduce rows over all vertices."""
        return tuple(call for call in self.calls if call.op == TOTAL)

    @property
    def buffers(self) -> frozenset[str]:
        """The names of the running statistics that a training step changes."""
        return frozenset(name for layer in self.tracked for name in (layer.mean, layer.variance))

    @property
    def learned(self) -> dict[str, int]:
        """The parameters that have a row for each vertex, each with the numbers in a row."""
        return {call.reads[0]: call.type.width for call in self.calls if call.op == LEARNED_ROWS}

    @property
    def types_of_rows(self) -> dict[str, str]:
        """The same parameters, each with the type of the vertices that have the rows; "" in a graph of one type."""
        types, found = self.vertex_types, {}
        for call in self.calls:
            if call.op == LEARNED_ROWS:
                *_, number = call.arguments
                found[call.reads[0]] = types.names[number] if types is not None and isinstance(number, int) else ""
        return found

    def alone(self) -> Spec:
        """Return the same model with its output alone, without what the loss reads beside it."""
        if not self.further:
            return self
        outputs = next(call.type.width for call in self.calls if call.output == self.output) - width_of(self.further)
        last = Call(
            "output_alone", "aten.slice.Tensor", (Ref(self.output), 1, 0, outputs), ValueType("vertex", (outputs,))
        )
        return replace(self, calls=(*self.calls, last), output=last.output, further=())

    def without_dropout(self) -> Spec:
        """Return the same model without its dropouts. What read the output of one reads the input of that one instead."""
        read: dict[str, Argument] = {}
        calls: list[Call] = []
        for call in self.calls:
            if call.op == DROPOUT and call.reads:
                read[call.output] = instead(Ref(call.reads[0]), read)
            elif read.keys().isdisjoint(call.reads):
                calls.append(call)
            else:
                arguments, keywords = instead((call.arguments, call.keywords), read)
                calls.append(replace(call, arguments=arguments, keywords=keywords))
        output = instead(Ref(self.output), read).name
        return replace(self, calls=tuple(calls), output=output)


Targets = Literal["train", "split"]
"""The vertices whose outputs are needed: those of the training split, or those of any split."""
