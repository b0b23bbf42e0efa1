"""Take the factors of a sum's messages that belong to vertices out of the edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from planner.nodes import Aggregate, Apply, Elementwise, Node, RowWise, Scatter, tensor_arguments
from planner.patterns import RESHAPES
from planner.rule import NodeRule
from planner.spec import ValueType

FACTORS = 16
"""The most factors into which a product is taken apart. In a chain such as z = y * y, w = z * z they double each time."""


@dataclass(frozen=True)
class _Factor:
    """A factor of a message, and the dimensions of 1 that are added to it for broadcasting."""

    node: Node
    ones: int = 0


def split_ends(node: Node) -> Node | None:
    """The sum of a[source] * b[destination] * w_e * x[source] is b times the sum of w_e * (a * x)[source].

    So is the mean. Models that normalise the weights of edges by the degrees of both ends have such messages. Afterwards
    a message is the row of a source times the weight, or times what is left of the edge.

    >>> from planner.nodes import StaticColumn
    >>> from planner.printer import tree
    >>> x, scale = (StaticColumn(name, ValueType("vertex", (width,))) for name, width in (("features", 4), ("label", 1)))
    >>> source, destination = Scatter(x, "source", "graph"), Scatter(scale, "destination", "graph")
    >>> message = Elementwise("aten.mul.Tensor", (destination, source), (), source.output)
    >>> for line in tree(split_ends(Aggregate(message, "sum", "graph"))): print(line)
    Elementwise(mul, _, label)                                        dl    [V, 4]
    Aggregate(kind=sum, edges=graph)                                  dl    [V, 4]
    Scatter(end=source, edges=graph, features)                        dl    [E, 4]
    """
    if not isinstance(node, Aggregate) or node.kind not in ("sum", "mean"):
        return None
    by_end: dict[str, list[_Factor]] = {"source": [], "destination": [], "edge": []}
    for factor in _factors(node.message):
        end = factor.node.end if isinstance(factor.node, Scatter) else "edge"
        by_end[end].append(factor)
    if not by_end["destination"] and len(by_end["source"]) < 2:
        return None
    of_edges = [_with_ones(factor.node, factor.ones, node.layer) for factor in by_end["edge"]]
    if by_end["source"]:
        of_sources = _product(_vertex_values(by_end["source"], node.layer), node.layer)
        of_edges.insert(0, Scatter(of_sources, "source", node.edges, node.layer))
    if not any(value.output.rows == "edge" for value in of_edges):
        return None
    total: Node = Aggregate(_product(of_edges, node.layer), node.kind, node.edges, node.layer)
    result = _product([total, *_vertex_values(by_end["destination"], node.layer)], node.layer)
    return result if result.output == node.output else None


def _factors(message: Node) -> list[_Factor]:
    """Return the factors of a product in order, at most `FACTORS` of them."""
    found: list[_Factor] = []
    stack = [_Factor(message)]
    while stack:
        top = stack.pop()
        reshaped, factors = _reshaped(top.node), _inputs_of_product(top.node)
        if reshaped is not None:
            stack.append(_Factor(reshaped.node, top.ones + reshaped.ones))
        elif factors and len(found) + len(stack) + 2 <= FACTORS:
            stack += [_Factor(factor, top.ones) for factor in reversed(factors)]
        else:
            found.append(top)
    return found


def _inputs_of_product(node: Node) -> tuple[Node, ...]:
    """Return the two factors of a product of values on edges with equally many dimensions; none for any other node."""
    if not isinstance(node, Apply) or node.op != "aten.mul.Tensor" or node.keywords:
        return ()
    inputs = tuple(tensor_arguments(node))
    of_edges = all(one.output.rows == "edge" and one.output.dtype == "float32" for one in inputs)
    return inputs if len(inputs) == 2 and of_edges and len({len(one.output.shape) for one in inputs}) == 1 else ()


def _reshaped(node: Node) -> _Factor | None:
    """Return the input of a node that adds dimensions of 1 behind those of its input, and does nothing else; or None."""
    if not isinstance(node, Apply) or node.op not in RESHAPES or len(tensor_arguments(node)) != 1:
        return None
    (given,) = tensor_arguments(node)
    before, after = given.output.shape, node.output.shape
    added = len(after) - len(before)
    return _Factor(given, added) if added >= 0 and after == (*before, *[1] * added) else None


def _vertex_values(factors: Sequence[_Factor], layer: str) -> list[Node]:
    """Return the values of vertices, of which the factors at one end of the edges are copies."""
    return [_with_ones(one.node.x, one.ones, layer) for one in factors if isinstance(one.node, Scatter)]


def _with_ones(node: Node, ones: int, layer: str) -> Node:
    """Return a value with as many dimensions of 1 behind its own as `ones` says."""
    for _ in range(ones):
        given = node.output
        wider = ValueType(given.rows, (*given.shape, 1), given.dtype, given.edges)
        node = RowWise("aten.unsqueeze.default", (node, -1), (), wider, layer)
    return node


def _product(factors: Sequence[Node], layer: str) -> Node:
    return reduce(lambda a, b: _times(a, b, layer), factors)


def _times(a: Node, b: Node, layer: str) -> Node:
    shape = tuple(max(sizes) for sizes in zip(a.output.shape, b.output.shape, strict=True))
    kind = ValueType(a.output.rows, shape, a.output.dtype, a.output.edges)
    return Elementwise("aten.mul.Tensor", (a, b), (), kind, layer)


RULE = NodeRule(
    name="split_ends",
    apply=split_ends,
    on=(Aggregate,),
    idle="no summed message has a factor of its destination, or several of its source",
    in_general_plan=False,
)
