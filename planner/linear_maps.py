"""Exchanges linear maps of rows and linear aggregates of rows, which commute: A(x W) = (A x) W."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeGuard

from planner.nodes import Elementwise, MatMul, Node, Propagate, altered

LINEAR = "aten.linear.default"

Linear = Callable[[Node], Node]
"""A function that applies an aggregate or a scaling to a node."""

Chain = Sequence[tuple[Node, Linear]]
"""A chain of aggregates, the outermost first, each with the function that applies it to another node."""


def pulled(node: Node) -> MatMul | None:
    """Return (A x) W for A(x W), where A is a chain of aggregates and of scalings by row. None means another form."""
    product, chain = _chain(node)
    if not chain or not _is_plain_map(product):
        return None
    return altered(product, arguments=(_over(chain, product.arguments[0]), *product.arguments[1:]))


def mapped(node: Node) -> Node | None:
    """Return the x of A(x W), as in `pulled`, or None."""
    product, chain = _chain(node)
    if not chain or not _is_plain_map(product):
        return None
    x: Node = product.arguments[0]
    return x


def pushed(node: Node) -> Node | None:
    """Return A(x W) [+ b] for (A x) W [+ b], through the whole chain at once, or None for another form."""
    if not isinstance(node, MatMul) or not _is_map(node):
        return None
    below, chain = _chain(node.arguments[0])
    if not chain:
        return None
    moved = _over(chain, altered(node, arguments=(below, node.arguments[1])))
    added = bias(node)
    return moved if added is None else Elementwise("aten.add.Tensor", (moved, added), (), node.type, node.layer)


def passed(node: MatMul) -> list[Node]:
    """Return the aggregates and scalings below which `pushed` moves a map, the outermost first."""
    return aggregates(node.arguments[0])


def aggregates(node: Node) -> list[Node]:
    """Return the chain of aggregates and scalings by row that ends in a node, the outermost first. It may be empty."""
    return [aggregate for aggregate, _ in _chain(node)[1]]


def bias(product: MatMul) -> Node | None:
    """Return the value that a linear map adds to every row, or None."""
    return product.arguments[2] if len(product.arguments) > 2 else None


def _is_plain_map(node: Node) -> TypeGuard[MatMul]:
    return isinstance(node, MatMul) and _is_map(node) and bias(node) is None


def _is_map(node: MatMul) -> bool:
    x = node.arguments[0]
    return node.op == LINEAR and _is_vectors(x) and _is_vectors(node) and node.arguments[1].output.rows == "none"


def _is_vectors(node: Node) -> bool:
    return node.output.rows == "vertex" and len(node.output.shape) == 1


def _chain(node: Node) -> tuple[Node, Chain]:
    """Return the node below a chain of aggregates, and the chain. A loop is used, because a chain may be deep."""
    chain: list[tuple[Node, Linear]] = []
    while (found := _aggregate(node)) is not None:
        below, over = found
        chain.append((node, over))
        node = below
    return node, chain


def _over(chain: Chain, x: Node) -> Node:
    """Apply a chain to another node."""
    for _, over in reversed(chain):
        x = over(x)
    return x


def _aggregate(node: Node) -> tuple[Node, Linear] | None:
    """Return (x, A) if a node is A of x, where A sums along edges or scales each row by its own number. Else None."""
    if isinstance(node, Propagate):
        return node.x, lambda x: altered(node, x=x)
    place = _scaled(node)
    if place is None:
        return None
    assert isinstance(node, Elementwise)  # a scaling is a product or a quotient
    arguments = node.arguments

    def scale(x: Node) -> Node:
        return altered(node, arguments=(*arguments[:place], x, *arguments[place + 1 :]), type=x.output)

    return arguments[place], scale


def _scaled(node: Node) -> int | None:
    """Return the place of the rows among the arguments of a product or quotient that scales each row by its own number."""
    if not isinstance(node, Elementwise) or node.keywords or node.op not in ("aten.mul.Tensor", "aten.div.Tensor"):
        return None
    for place in (0, 1) if node.op == "aten.mul.Tensor" else (0,):
        rows, factor = node.arguments[place], node.arguments[1 - place]
        if not isinstance(rows, Node) or not isinstance(factor, Node):
            return None
        if _is_vectors(rows) and rows.output == node.output and _is_vectors(factor) and factor.output.width == 1:
            return place
    return None
