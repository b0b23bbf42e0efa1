"""Rule: neighbouring operators of the DL Engine become one stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.nodes import GraphOperator, Node, StaticColumn

TIMES_MOVED = 2  # a column of its own would be written once and read once


def fuse_apply(
    stages: Mapping[Node, int], order: Sequence[Node], readers: Mapping[Node, Sequence[Node]]
) -> dict[Node, int]:
    """g(f(x)) in one round trip: rows are piped once between two graph operators, not once per operator.

    The stage of an operator becomes the number of graph operators with vertex rows on its longest path from the inputs.
    An operator that reads nothing but columns the Graph Engine holds anyway, and not many more numbers than it yields,
    moves down to its first reader: what it yields then needs no column of its own.

    Args:
        stages: the stage of every operator of the DL Engine on vertex rows, one each.
        order: all nodes, children first.
        readers: the nodes that read each node.
    """
    level: dict[Node, int] = {}
    movable: set[Node] = set()
    held = {child for node in order if isinstance(node, GraphOperator) for child in node.children}
    for node in order:
        level[node] = max([level[child] for child in node.children], default=0) + _is_boundary(node)
        if node in stages and _reads_columns(node, movable, held):
            movable.add(node)
    for node in reversed(order):
        if node in movable and readers[node]:
            level[node] = max(level[node], min(_latest(reader, level) for reader in readers[node]))
    return {node: level[node] for node in stages}


def _latest(reader: Node, level: Mapping[Node, int]) -> int:
    """The last level at which an input of the reader can be computed."""
    return level[reader] - _is_boundary(reader)


def _is_boundary(node: Node) -> bool:
    """Whether what reads a node waits for neighbours; arithmetic on edges is done before the next stage in any case."""
    return isinstance(node, GraphOperator) and node.output.rows == "vertex"


def _reads_columns(node: Node, movable: set[Node], held: set[Node]) -> bool:
    """Whether all rows an operator reads are columns anyway: static, made by a graph operator, or `held` as read by one."""
    inputs = [child for child in dict.fromkeys(node.children) if child.output.rows != "none"]
    if not all(isinstance(i, (StaticColumn, GraphOperator)) or i in movable or i in held for i in inputs):
        return False
    fresh = sum(child.output.width for child in inputs if not isinstance(child, StaticColumn))
    return fresh <= TIMES_MOVED * node.output.width
