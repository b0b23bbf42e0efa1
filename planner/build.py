"""Builds the logical operator graph of a Spec, one node per traced call."""

from __future__ import annotations

from collections.abc import Callable

from planner.edge_columns import EDGE_COLUMN, fill_of
from planner.edge_sets import BASES, is_edge_set
from planner.errors import PlanError
from planner.neighbours import NEIGHBOUR_OPERATORS, OnNeighbours
from planner.nodes import (
    Aggregate,
    Apply,
    Dropout,
    EdgeColumn,
    EdgeSoftmax,
    EdgeWeight,
    Elementwise,
    MatMul,
    Node,
    NodeArgument,
    OnParameters,
    Parameter,
    Random,
    RowWise,
    Scatter,
    StaticColumn,
)
from planner.spec import (
    AGGREGATES,
    DISTRIBUTIONS,
    DROPOUT,
    GREATEST,
    GROUP_ROWS,
    GROUP_TOTAL,
    LEARNED_ROWS,
    PRODUCTS,
    RECURRENT,
    SHOWN,
    SHOWN_KEY,
    STATIC_COLUMNS,
    TIMES_TOTAL,
    TOTAL,
    TOTAL_PRODUCTS,
    TOTALS,
    TRACK,
    Argument,
    Call,
    EdgeSet,
    Ref,
    Spec,
    ValueType,
    is_aggregate,
    is_static_column,
    operator_name,
)
from planner.steps.learned_rows import LearnedRows, OfType
from planner.steps.total import ChunkSum, Total

ELEMENTWISE = frozenset(
    {
        "abs", "add", "celu", "clamp", "clamp_min", "cos", "div", "elu", "exp", "gelu", "hardtanh", "leaky_relu", "log",
        "log1p", "maximum", "minimum", "mish", "mul", "neg", "pow", "reciprocal", "relu", "relu6", "rsqrt", "rsub",
        "selu", "sigmoid", "silu", "sin", "softplus", "sqrt", "square", "sub", "tanh", "where",
    }
)  # fmt: skip
"""Operator names, without overloads, whose meaning the planner knows. Any other row-wise operator is opaque to it."""


def build(spec: Spec, weighted: bool = True) -> Node:
    """Build the logical graph of a traced model. Its root yields the rows of the model's output.

    Args:
        spec: The traced model.
        weighted: True if the graph has edge weights.

    Raises:
        PlanError: If the planner has no operator for a call, or a call reads a value that does not exist.
    """
    values: dict[str, Node] = {"features": StaticColumn("features", ValueType("vertex", (spec.width,)))}
    for parameter in spec.parameters:
        values[parameter.name] = Parameter(parameter.name, parameter.shape, parameter.trainable, parameter.dtype)
    keys: dict[str, int] = {}  # of draws that several calls share
    for ordinal, call in enumerate(spec.calls):
        builder, key = BUILDERS.get(call.op), keys.setdefault(call.draw, ordinal) if call.draw else ordinal
        values[call.output] = builder(call, values, key, weighted) if builder else _apply(call, values)
    if spec.output not in values:
        raise PlanError(f"the model's output {spec.output!r} is not the output of any of its calls")
    return values[spec.output]


Values = dict[str, Node]


def _node(argument: Argument, values: Values, call: Call) -> Node:
    if not isinstance(argument, Ref) or argument.name not in values:
        raise PlanError(f"{call.op} ({call.where or call.layer}) reads {argument!r}, which is no earlier value")
    return values[argument.name]


def _resolved(argument: Argument, values: Values, call: Call) -> NodeArgument:
    if isinstance(argument, tuple):
        return tuple(_resolved(item, values, call) for item in argument)
    return _node(argument, values, call) if isinstance(argument, Ref) else argument


def _apply(call: Call, values: Values) -> Node:
    if call.op.startswith("lotan."):
        raise PlanError(f"{call.op} ({call.where or call.layer}) is no operator of the planner")
    arguments = tuple(_resolved(argument, values, call) for argument in call.arguments)
    keywords = tuple((name, _resolved(argument, values, call)) for name, argument in call.keywords)
    return _kind(call)(call.op, arguments, keywords, call.type, call.layer)


def _kind(call: Call) -> type[Apply]:
    name = operator_name(call.op)
    if call.type.rows == "none":
        return OnParameters
    if name in PRODUCTS:
        return MatMul
    return Elementwise if name in ELEMENTWISE else RowWise


def _dropout(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    settings = dict(zip(("x", "p", "train"), call.arguments, strict=False)) | dict(call.keywords)
    x = _node(settings.get("x", settings.get("input")), values, call)
    probability = settings["p"]
    if not isinstance(probability, (int, float)) or not settings.get("train", True) or probability == 0:
        return x
    return Dropout(x, float(probability), ordinal, call.layer)


def _random(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    kind = DISTRIBUTIONS[call.op]
    probability = call.arguments[1] if kind == "chance" else 0.0
    if not isinstance(probability, (int, float)):
        raise PlanError(
            f"{call.op} ({call.where or call.layer}) has the probability {probability!r}; expected a number"
        )
    return Random(_node(call.arguments[0], values, call), kind, float(probability), ordinal, call.layer)


def _shown(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    x, probability = call.arguments
    if not isinstance(probability, (int, float)):
        raise PlanError(f"{call.op} has the probability {probability!r}; expected a number")
    return Random(_node(x, values, call), "chance", float(probability), SHOWN_KEY, call.layer)


def _edges(argument: Argument, call: Call) -> EdgeSet:
    if is_edge_set(argument):
        return str(argument)
    raise PlanError(
        f"{call.op} ({call.where or call.layer}) names the edge set {argument!r}; expected "
        f"{', '.join(map(repr, BASES))}, or one of a relation, such as 'graph:0'"
    )


def _scatter(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    x, end, edges = call.arguments
    if end not in ("source", "destination"):
        raise PlanError(
            f"{call.op} ({call.where or call.layer}) names the end {end!r}; expected 'source' or 'destination'"
        )
    return Scatter(_node(x, values, call), str(end), _edges(edges, call), call.layer)


def _aggregate(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    message, kind, edges = call.arguments
    if not is_aggregate(kind):
        raise PlanError(
            f"{call.op} ({call.where or call.layer}) is of kind {kind!r}; expected one of {AGGREGATES}, or a quantile"
        )
    return Aggregate(_node(message, values, call), str(kind), _edges(edges, call), call.layer)


def _edge_softmax(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    return EdgeSoftmax(_node(call.arguments[0], values, call), _edges(call.arguments[1], call), call.layer)


def _edge_weight(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    return EdgeWeight(_edges(call.arguments[0], call), unit=not weighted)


def _edge_column(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    name, edges = call.arguments
    try:
        fill_of(str(name))
    except ValueError as error:
        raise PlanError(f"{call.op} ({call.where or call.layer}): {error}") from error
    return EdgeColumn(str(name), _edges(edges, call), call.type.shape, call.type.dtype)


def _vertex_input(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    name = call.arguments[0]
    if not is_static_column(name):
        raise PlanError(
            f"{call.op} ({call.where or call.layer}) names the column {name!r}; expected one of {STATIC_COLUMNS}"
        )
    return StaticColumn(str(name), call.type)


def _learned_rows(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    parameter = _node(call.arguments[0], values, call)
    if not isinstance(parameter, Parameter):
        raise PlanError(f"{call.op} ({call.where or call.layer}) reads {call.arguments[0]!r}, which is no parameter")
    *_, number = call.arguments
    of_type = OfType(number, parameter.output.shape[0]) if isinstance(number, int) else None
    return LearnedRows(parameter.name, call.type.shape, parameter.trainable, call.layer, of_type)


def _total(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    x, kind = call.arguments
    for known in TOTALS:
        if kind == known:
            return Total(_node(x, values, call), known, call.layer)
    raise PlanError(f"{call.op} ({call.where or call.layer}) is of kind {kind!r}; expected one of {TOTALS}")


def _total_products(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    x, y = (_node(argument, values, call) for argument in call.arguments)
    return Total(ChunkSum(x, y, call.layer), "sum", call.layer)


def _greatest(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    return Total(ChunkSum(_node(call.arguments[0], values, call), None, call.layer, greatest=True), "max", call.layer)


def _group_total(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    x, group = (_node(argument, values, call) for argument in call.arguments[:2])
    groups, kind = call.arguments[2:]
    if not isinstance(groups, int) or kind not in ("sum", "max"):
        raise PlanError(f"{call.op} ({call.where or call.layer}) has {groups!r} groups and is of kind {kind!r}")
    part = ChunkSum(x, None, call.layer, group, groups, greatest=kind == "max")
    return Total(part, "max" if kind == "max" else "sum", call.layer)


def _row_wise(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    if call.type.rows == "none":
        raise PlanError(f"{call.op} ({call.where or call.layer}) needs rows of vertices or edges")
    arguments = tuple(_resolved(argument, values, call) for argument in call.arguments)
    return RowWise(call.op, arguments, (), call.type, call.layer)


def _on_neighbours(call: Call, values: Values, ordinal: int, weighted: bool) -> Node:
    *others, edges = call.arguments
    arguments = tuple(_resolved(argument, values, call) for argument in others)
    return OnNeighbours(call.op, (*arguments, _edges(edges, call)), call.type, call.layer)


BUILDERS: dict[str, Callable[[Call, Values, int, bool], Node]] = {
    DROPOUT: _dropout,
    **dict.fromkeys(DISTRIBUTIONS, _random),
    SHOWN: _shown,
    "lotan.scatter": _scatter,
    "lotan.aggregate": _aggregate,
    "lotan.edge_softmax": _edge_softmax,
    "lotan.edge_weight": _edge_weight,
    EDGE_COLUMN: _edge_column,
    "lotan.vertex_input": _vertex_input,
    LEARNED_ROWS: _learned_rows,
    TOTAL: _total,
    TOTAL_PRODUCTS: _total_products,
    GREATEST: _greatest,
    GROUP_TOTAL: _group_total,
    GROUP_ROWS: _row_wise,
    TIMES_TOTAL: _row_wise,
    TRACK: _row_wise,
    RECURRENT: _row_wise,
    **dict.fromkeys(NEIGHBOUR_OPERATORS, _on_neighbours),
}
