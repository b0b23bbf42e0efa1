"""Linear maps of rows and linear aggregates of rows, which change places: A(x W) = (A x) W."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.nodes import Elementwise, MatMul, Node, Propagate
from planner.spec import ValueType

LINEAR = "aten.linear.default"


def pulled(node: Node) -> MatMul | None:
    """(A x) W for A(x W), through a chain of aggregates and of scalings row by row; None for anything else."""
    found = _aggregate(node)
    if found is None:
        return None
    below, over = found
    product = below if isinstance(below, MatMul) else pulled(below)
    if product is None or not _is_map(product) or bias(product) is not None:
        return None
    return replace(product, arguments=(over(product.arguments[0]), *product.arguments[1:]))


def pushed(node: Node) -> Node | None:
    """A(x W) [+ b] for (A x) W [+ b], by one aggregate or scaling; None for anything else."""
    if not isinstance(node, MatMul) or not _is_map(node):
        return None
    found = _aggregate(node.arguments[0])
    if found is None:
        return None
    below, over = found
    moved = over(replace(node, arguments=(below, node.arguments[1])))
    added = bias(node)
    return moved if added is None else Elementwise("aten.add.Tensor", (moved, added), (), node.type, node.layer)


def bias(product: MatMul) -> Node | None:
    """What a linear map adds to every row."""
    return product.arguments[2] if len(product.arguments) > 2 else None


def _is_map(node: MatMul) -> bool:
    x = node.arguments[0]
    return node.op == LINEAR and _is_vectors(x) and _is_vectors(node) and node.arguments[1].output.rows == "none"


def _is_vectors(node: Node) -> bool:
    return node.output.rows == "vertex" and len(node.output.shape) == 1


def _aggregate(node: Node) -> tuple[Node, Callable[[Node], Node]] | None:
    """(x, A) where a node is A of x: a sum along edges, or every row times a number of its own."""
    if isinstance(node, Propagate):
        return node.x, lambda x: replace(node, x=x)
    place = _scaled(node)
    if place is None:
        return None
    assert isinstance(node, Elementwise)  # what is scaled is a product or a quotient
    arguments = node.arguments

    def scale(x: Node) -> Node:
        return replace(node, arguments=(*arguments[:place], x, *arguments[place + 1 :]), type=_vectors_of(x))

    return arguments[place], scale


def _vectors_of(x: Node) -> ValueType:
    return ValueType("vertex", x.output.shape, x.output.dtype)


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
