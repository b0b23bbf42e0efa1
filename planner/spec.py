"""The Planner's input: a traced model as a flat list of calls, free of torch and Spark.

`lotan.tracing` writes a `Spec`; `planner.build` reads it. A call is one tensor operator in the canonical spelling of
PyTorch's operator library ("aten.linear.default"), or one of the graph operators below ("lotan.scatter" ...).
The same `Call` is also the instruction of a `planner.physical.Stage`, so that what was traced is what a worker runs.

Graph operators, with their arguments:
    lotan.scatter(x, end, edges)        vertex rows -> edge rows; `end` is "source" or "destination"
    lotan.aggregate(m, kind, edges)     edge rows -> vertex rows by destination; `kind` in AGGREGATES, zero without in-edges
    lotan.edge_softmax(s, edges)        edge rows -> edge rows, exp(s - max) / (sum + SOFTMAX_EPSILON) over the in-edges
                                        of each destination, max and sum being taken there
    lotan.edge_weight(edges)            the weight of each edge, shape (), 1 where the graph has none
    lotan.vertex_input(name)            a static column of the graph by name, see STATIC_COLUMNS
    lotan.dropout(x, p, key)            (stages only) dropout whose random numbers belong to `key` and the row

A dtype among a call's arguments is a string, "torch.float32".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

Rows = Literal["vertex", "edge", "none"]
"""What the first dimension of a value counts; "none" for values computed from parameters and constants alone."""

EdgeSet = Literal["graph", "self_loops"]
"""Which edges: as given, or with every self-loop replaced by exactly one per vertex (of its weight, else 1)."""

Ability = Literal["edge_columns", "extremes", "sparse_rows"]
"""What not every Graph Engine can: to hold values of edges and compute with them; to take a max or min over in-edges; to give
stages the features as the numbers that are not zero."""

AGGREGATES = ("sum", "mean", "max", "min")
STATIC_COLUMNS = ("features", "label", "split", "in_degree", "gcn_scale@graph", "gcn_scale@self_loops")
"""`in_degree` is float32 and at least 1; `gcn_scale` is (weighted in-degree)^-1/2, 0 where that is not finite."""

SOFTMAX_EPSILON = 1e-16
"""As in torch_geometric.utils.softmax."""

SPLITS = ("train", "val", "test")
"""The static column `split` holds -1 for none, else the position here."""


@dataclass(frozen=True)
class Ref:
    """An argument that is the output of an earlier call, an input or a parameter, by name."""

    name: str


@dataclass(frozen=True)
class RowCount:
    """An argument that is the number of rows of the call's own output: never a fixed number."""


Argument = Ref | RowCount | int | float | bool | str | None | tuple["Argument", ...]


class ValueType(NamedTuple):  # made, hashed and compared tens of thousands of times while a deep model is planned
    """What a value is: rows of `shape` each, or for rows="none" one tensor of `shape`."""

    rows: Rows
    shape: tuple[int, ...]
    dtype: str = "float32"
    edges: EdgeSet | None = None  # for rows="edge": which edges the rows are

    @property
    def width(self) -> int:
        """Numbers per row."""
        width = 1
        for size in self.shape:
            width *= size
        return width


PRODUCTS = ("linear", "mm", "addmm", "matmul")
"""Names of the operators that multiply with a matrix."""


@lru_cache(maxsize=1024)  # a deep model has tens of thousands of calls to ask for, and few operators
def operator_name(op: str) -> str:
    """An operator without library and overload.

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
    """An argument, or several, with others in place of those values that are named in `read`.

    >>> instead((Ref("x"), 2, (Ref("y"),)), {"y": Ref("z")})
    (Ref(name='x'), 2, (Ref(name='z'),))
    """
    if isinstance(argument, tuple):
        return tuple(instead(item, read) for item in argument)
    return read.get(argument.name, argument) if isinstance(argument, Ref) else argument


@dataclass(frozen=True)
class Call:
    """One operator: `output = op(*arguments, **keywords)`."""

    output: str
    op: str
    arguments: tuple[Argument, ...]
    type: ValueType
    keywords: tuple[tuple[str, Argument], ...] = ()
    layer: str = ""  # qualified name of the module it came from, for explain and errors
    where: str = ""  # "file.py:12" of the user's line

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The values a call reads, by name, in order, each as often as it is read."""
        return tuple(_names((*self.arguments, *(value for _, value in self.keywords))))


@dataclass(frozen=True)
class ParameterSpec:
    """A parameter or buffer of the model; `trainable` is its requires_grad."""

    name: str
    shape: tuple[int, ...]
    trainable: bool = True
    dtype: str = "float32"


@dataclass(frozen=True)
class Spec:
    """A model traced in one mode (training or evaluation). Its only row input is the static column "features"."""

    width: int  # of the features
    parameters: tuple[ParameterSpec, ...]
    calls: tuple[Call, ...]  # in execution order
    output: str  # name of the call whose rows are the model's output (logits), one per vertex


Task = Literal["classification", "multilabel", "regression"]


@dataclass(frozen=True)
class LossSpec:
    """The loss over training vertices: sum of weighted terms / normalizer (torch's reduction="mean")."""

    task: Task
    outputs: int  # classes, labels or targets: the width of the model's output
    normalizer: float  # training vertices, or the sum of their class weights; times outputs where torch averages those
    class_weights: tuple[float, ...] | None = None


Targets = Literal["train", "split"]
"""The vertices whose outputs are asked for: those in training, or in any split."""
