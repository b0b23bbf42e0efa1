"""Let the stage that makes rows add them up for a reduction over all vertices."""

from __future__ import annotations

from planner.nodes import GraphOperator, Node, StaticColumn, altered
from planner.rule import NodeRule
from planner.steps.total import ADDING, ChunkSum, Total


def sum_in_stages(node: Node) -> Node | None:
    """The sum of all rows = the sum over chunks of the sum of each chunk's rows.

    The stage then puts out one row for each chunk, and no column. The gradient of that row is one row as well, which is the
    same for all chunks.

    >>> from planner.nodes import Elementwise, StaticColumn
    >>> from planner.printer import tree
    >>> from planner.spec import ValueType
    >>> x = StaticColumn("features", ValueType("vertex", (4,)))
    >>> squares = Elementwise("aten.mul.Tensor", (x, x), (), x.output)
    >>> for line in tree(sum_in_stages(Total(squares, "mean"))): print(line)
    Total(mean, all vertices)                                         graph [V, 4]
    ChunkSum(rows)                                                    dl    [V, 4]
    Elementwise(mul, features)                                        dl    [V, 4]
    """
    if not isinstance(node, Total) or node.kind not in ADDING or node.scale is not None:
        return None
    if isinstance(node.x, (GraphOperator, StaticColumn, ChunkSum)):
        return None
    return altered(node, x=ChunkSum(node.x, None, node.layer))


RULE = NodeRule(
    name="sum_in_stages",
    apply=sum_in_stages,
    on=(Total,),
    idle="no sum or mean over all vertices is taken of what a stage makes",
    in_general_plan=False,
)
