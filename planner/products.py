"""Products of values with rows: taken apart into factors, and put together again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from planner.nodes import Apply, Elementwise, Node, RowWise, tensor_arguments
from planner.patterns import RESHAPES
from planner.spec import ValueType

FACTORS = 16
"""The most factors into which a product is taken apart. In a chain such as z = y * y, w = z * z they double each time."""


@dataclass(frozen=True)
class Factor:
    """A factor of a message, and the dimensions of 1 that are added to it for broadcasting."""

    node: Node
    ones: int = 0


def factors_of(message: Node) -> list[Factor]:
    """Return the factors of a product in order, at most `FACTORS` of them."""
    found: list[Factor] = []
    stack = [Factor(message)]
    while stack:
        top = stack.pop()
        reshaped, factors = _reshaped(top.node), _inputs_of_product(top.node)
        if reshaped is not None:
            stack.append(Factor(reshaped.node, top.ones + reshaped.ones))
        elif factors and len(found) + len(stack) + 2 <= FACTORS:
            stack += [Factor(factor, top.ones) for factor in reversed(factors)]
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


def _reshaped(node: Node) -> Factor | None:
    """Return the input of a node that adds dimensions of 1 behind those of its input, and does nothing else; or None."""
    if not isinstance(node, Apply) or node.op not in RESHAPES or len(tensor_arguments(node)) != 1:
        return None
    (given,) = tensor_arguments(node)
    before, after = given.output.shape, node.output.shape
    added = len(after) - len(before)
    return Factor(given, added) if added >= 0 and after == (*before, *[1] * added) else None


def with_ones(factor: Factor, layer: str) -> Node:
    """Return the value of a factor, with its dimensions of 1."""
    node = factor.node
    for _ in range(factor.ones):
        given = node.output
        wider = ValueType(given.rows, (*given.shape, 1), given.dtype, given.edges)
        node = RowWise("aten.unsqueeze.default", (node, -1), (), wider, layer)
    return node


def product(factors: Sequence[Node], layer: str) -> Node:
    """Return the product of values with the same kind of rows."""
    return reduce(lambda a, b: _times(a, b, layer), factors)


def _times(a: Node, b: Node, layer: str) -> Node:
    shape = tuple(max(sizes) for sizes in zip(a.output.shape, b.output.shape, strict=True))
    kind = ValueType(a.output.rows, shape, a.output.dtype, a.output.edges)
    return Elementwise("aten.mul.Tensor", (a, b), (), kind, layer)
