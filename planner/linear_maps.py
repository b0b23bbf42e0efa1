"""Linear maps of rows and linear aggregates of rows, which change places: A(x W) = (A x) W."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeGuard

from planner.nodes import Elementwise, MatMul, Node, Propagate, altered

LINEAR = "aten.linear.default"

Linear = Callable[[Node], Node]
"""An aggregate or a scaling of what it is given."""

Chain = Sequence[tuple[Node, Linear]]
"""Aggregates one below the other, outermost first, and each as a function of what is below it."""


def pulled(node: Node) -> MatMul | None:
    """(A x) W for A(x W), through a chain of aggregates and of scalings row by row; None for anything else."""
    product, chain = _chain(node)
    if not chain or not _is_plain_map(product):
        return None
    return altered(product, arguments=(_over(chain, product.arguments[0]), *product.arguments[1:]))


def mapped(node: Node) -> Node | None:
    """The x of A(x W), as in `pulled`."""
    product, chain = _chain(node)
    if not chain or not _is_plain_map(product):
        return None
    x: Node = product.arguments[0]
    return x


def pushed(node: Node) -> Node | None:
    """A(x W) [+ b] for (A x) W [+ b], through the whole chain at once; None for anything else."""
    if not isinstance(node, MatMul) or not _is_map(node):
        return None
    below, chain = _chain(node.arguments[0])
    if not chain:
        return None
    moved = _over(chain, altered(node, arguments=(below, node.arguments[1])))
    added = bias(node)
    return moved if added is None else Elementwise("aten.add.Tensor", (moved, added), (), node.type, node.layer)


def passed(node: MatMul) -> list[Node]:
    """The aggregates and scalings that `pushed` moves a map below, outermost first."""
    return [aggregate for aggregate, _ in _chain(node.arguments[0])[1]]


def bias(product: MatMul) -> Node | None:
    """What a linear map adds to every row."""
    return product.arguments[2] if len(product.arguments) > 2 else None


def _is_plain_map(node: Node) -> TypeGuard[MatMul]:
    return isinstance(node, MatMul) and _is_map(node) and bias(node) is None


def _is_map(node: MatMul) -> bool:
    x = node.arguments[0]
    return node.op == LINEAR and _is_vectors(x) and _is_vectors(node) and node.arguments[1].output.rows == "none"


def _is_vectors(node: Node) -> bool:
    return node.output.rows == "vertex" and len(node.output.shape) == 1


def _chain(node: Node) -> tuple[Node, Chain]:
    """What lies below a chain of aggregates, and these. It may be longer than Python recurses."""
    chain: list[tuple[Node, Linear]] = []
    while (found := _aggregate(node)) is not None:
        below, over = found
        chain.append((node, over))
        node = below
    return node, chain


def _over(chain: Chain, x: Node) -> Node:
    """The chain, of something else."""
    for _, over in reversed(chain):
        x = over(x)
    return x


def _aggregate(node: Node) -> tuple[Node, Linear] | None:
    """(x, A) where a node is A of x: a sum along edges, or every row times a number of its own."""
    if isinstance(node, Propagate):
        return node.x, lambda x: altered(node, x=x)
    place = _scaled(node)
    if place is None:
        return None
    assert isinstance(node, Elementwise)  # what is scaled is a product or a quotient
    arguments = node.arguments

    def scale(x: Node) -> Node:
        return altered(node, arguments=(*arguments[:place], x, *arguments[place + 1 :]), type=x.output)

    return arguments[place], scale


def _scaled(node: Node) -> int | None:
    """The place of the rows among the arguments of a product or quotient of rows and a number for each."""
    if not isinstance(node, Elementwise) or node.keywords or node.op not in ("aten.mul.Tensor", "aten.div.Tensor"):
        return None
    for place in (0, 1) if node.op == "aten.mul.Tensor" else (0,):
        rows, factor = node.arguments[place], node.arguments[1 - place]
        if not isinstance(rows, Node) or not isinstance(factor, Node):
            return None
        if _is_vectors(rows) and rows.output == node.output and _is_vectors(factor) and factor.output.width == 1:
            return place
    return None
