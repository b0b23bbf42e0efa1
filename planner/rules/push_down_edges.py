"""Do unparameterised arithmetic on edges in the Graph Engine, even if both ends take part in it."""

from __future__ import annotations

from math import prod

from planner.edge_values import EdgeValues, ObstacleError, check_depth, column, unshaped
from planner.labels import place
from planner.nodes import Aggregate, Apply, Node, Scatter
from planner.patterns import copied_source, divided_by_degree, has_degree
from planner.products import FACTORS
from planner.rule import NodeRule
from planner.spec import ValueType
from planner.steps.edge_sum import EdgeSum
from planner.steps.scaled_propagate import ScaledPropagate


def push_down_edges(node: Node) -> Node | None:
    """The sum over in-edges of f(both ends, weight) * x[source] needs no collection if f has no parameters.

    f becomes an edge column, which expressions, edge softmax and dropout compute with one number for each head. The sum
    becomes a propagate that this column scales. A narrow message without such an x becomes an edge column that is
    summed. Plain copies of x[source], and their products with the edge's weight, are left to `push_down`.

    >>> from planner.nodes import EdgeSoftmax, Elementwise, StaticColumn
    >>> x, score = (StaticColumn(name, ValueType("vertex", (width,))) for name, width in (("features", 4), ("label", 1)))
    >>> scores, ends = ValueType("edge", (1,), edges="graph"), ("source", "destination")
    >>> both = Elementwise("aten.add.Tensor", tuple(Scatter(score, end, "graph") for end in ends), (), scores)
    >>> copy = Scatter(x, "source", "graph")
    >>> message = Elementwise("aten.mul.Tensor", (EdgeSoftmax(both, "graph"), copy), (), copy.output)
    >>> pushed = push_down_edges(Aggregate(message, "sum", "graph"))
    >>> [type(part).__name__ for part in (pushed, pushed.scales, pushed.scales.scores)]
    ['ScaledPropagate', 'SegmentSoftmax', 'EdgeExpression']
    """
    if not isinstance(node, Aggregate) or not _is_of_concern(node):
        return None
    try:
        total = _pushed(node)
    except ObstacleError:
        return None
    return total if node.kind == "sum" else divided_by_degree(total, node.edges, node.layer)


def declined(node: Node) -> str | None:
    """Return the reason why an aggregate stayed in the DL Engine, or None."""
    if not isinstance(node, Aggregate) or not _is_of_concern(node):
        return None
    try:
        _pushed(node)
    except ObstacleError as obstacle:
        return f"the message of {place(node)} {obstacle}; its neighbourhoods are collected"
    return None


def _is_of_concern(node: Aggregate) -> bool:
    return node.kind in ("sum", "mean") and copied_source(node.message) is None


def _pushed(node: Aggregate) -> Node:
    if node.kind == "mean" and not has_degree(node.edges):
        raise ObstacleError("is averaged over added self-loops; write that as a sum over a scaled x")
    check_depth(node.message)
    message, values = unshaped(node.message), EdgeValues()
    return _scaled(node, message, values) or EdgeSum(values.column(message), node.output, node.layer)


def _scaled(node: Aggregate, message: Node, values: EdgeValues) -> Node | None:
    """Return a propagate if the message is the source's row times a number for each edge and head, else None."""
    factors = _factors(message)
    copies = [f for f in factors if isinstance(f, Scatter) and f.end == "source" and f.output == message.output]
    if len(copies) != 1 or len(factors) < 2:
        return None
    factors.remove(copies[0])
    runs = [_heads(factor, message) for factor in factors]
    heads = max(run or 0 for run in runs)
    if any(run not in (1, heads) for run in runs):
        return None
    product, *others = (values.operand(factor, heads) for factor in factors)
    for other in others:
        product = ("mul", product, other)
    scales = column(product, ValueType("edge", (heads,), edges=node.edges), node.layer)
    return ScaledPropagate(copies[0].x, scales, node.edges, node.output, node.layer)


def _factors(message: Node) -> list[Node]:
    """Return the factors of a product, taken apart up to `FACTORS`. A value that is no product is its own only factor."""
    factors: list[Node] = []
    stack = [message]
    while stack:
        node = stack.pop()
        within = len(factors) + len(stack) + 2 <= FACTORS
        if within and isinstance(node, Apply) and node.op == "aten.mul.Tensor" and len(node.children) == 2:
            stack += reversed(node.children)
        else:
            factors.append(node)
    return factors


def _heads(factor: Node, message: Node) -> int | None:
    """Return the number of heads for which a factor has one number each, or None if it has another form.

    The number for a head multiplies a run of consecutive numbers in each row of the message.
    """
    full, given = message.output.shape, factor.output.shape
    padded = (1,) * (len(full) - len(given)) + given
    for split in range(len(full) + 1):
        if padded == full[:split] + (1,) * (len(full) - split):
            return prod(full[:split])
    return None


RULE = NodeRule(
    name="push_down_edges",
    apply=push_down_edges,
    declined=declined,
    needs="edge_columns",
    on=(Aggregate,),
    idle="the model sums nothing over edges but rows of sources, as they are or times the edge's weight",
    in_general_plan=False,
)
