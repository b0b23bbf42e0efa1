"""Send the narrower side of a linear map along the edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.draft import Draft
from planner.labels import place
from planner.linear_maps import bias, mapped, passed, pulled, pushed
from planner.nodes import Apply, MatMul, Node, Propagate
from planner.rule import NodeRule


def commute_linear(node: Node) -> Node | None:
    """A(x W) = (A x) W, where A sums along edges or scales each row. The side that moves fewer numbers in an epoch is summed.

    Forward moves the rows that are summed, and backward moves their gradients, which are as wide. Rows that depend on no
    trained parameter have no gradient.

    >>> from planner.nodes import Parameter, StaticColumn
    >>> from planner.printer import tree
    >>> from planner.spec import ValueType
    >>> x, w = StaticColumn("features", ValueType("vertex", (4,))), Parameter("w", (9, 4))
    >>> wide = Propagate(MatMul("aten.linear.default", (x, w), (), ValueType("vertex", (9,))), "graph")
    >>> for line in tree(wide): print(line)
    Propagate(sum, edges=graph)                                       graph [V, 9]
    MatMul(linear, w, features)                                       dl    [V, 9]
    >>> for line in tree(commute_linear(wide)): print(line)
    MatMul(linear, w)                                                 dl    [V, 9]
    Propagate(sum, edges=graph, features)                             graph [V, 4]
    """
    x = mapped(node)
    if x is not None and moved(x) < moved(node):  # a quick test: the sum of x moves at least as many numbers as x
        before = pulled(node)
        if before is not None and moved(before.arguments[0]) < moved(node):
            return before
    if isinstance(node, MatMul) and moved(node) < moved(node.arguments[0]):
        return pushed(node)
    return None


def moved(summed: Node) -> int:
    """Return the numbers that move along each edge for a sum in an epoch, forward and backward."""
    return summed.output.width * (2 if summed.trained else 1)


def pays(node: Node, readers: Mapping[Node, Sequence[Node]]) -> bool:
    """Return True if fewer numbers move after the rule has fired.

    A map that moves below a sum must not leave that sum to other readers. If only maps read the sum, all of them move.
    Their outputs must then move fewer numbers together than the sum does.

    Args:
        node: The node on which the rule would fire.
        readers: The readers of every node. A node that has just been rewritten is missing, and is asked about again in
            the next walk.
    """
    if not isinstance(node, MatMul):
        return True  # the map moves above the sum, so the sum of its output is no longer needed
    sums = passed(node)
    if not sums or any(one not in readers for one in sums):
        return False
    if any(len(readers[one]) > 1 for one in sums[1:]):
        return False
    together = sum(map(moved, readers[sums[0]]))
    return together < moved(sums[0]) and all(isinstance(reader, MatMul) for reader in readers[sums[0]])


def declined(node: Node) -> str | None:
    """Return the reason why a sum stayed on the wider side, and what to write instead, or None."""
    if not isinstance(node, Propagate) or not isinstance(node.x, MatMul) or bias(node.x) is None:
        return None
    if moved(node.x.arguments[0]) >= moved(node):
        return None
    return f"the linear map before the sum of {place(node)} has a bias; add it after the sum"


def _in_doubt(draft: Draft, _: bool) -> bool:
    """Return True if one sum has become several, which walk over the edges once each, however narrow they are."""
    maps = [firing.before for firing in draft.firings if firing.rule == RULE.name and isinstance(firing.before, MatMul)]
    return len({node.arguments[0] for node in maps}) < len(maps)


RULE = NodeRule(
    name="commute_linear",
    apply=commute_linear,
    declined=declined,
    pays=pays,
    in_doubt=_in_doubt,
    on=(Apply, Propagate),
    idle="no sum would move fewer numbers on the other side of a linear map, with all that reads it counted",
    in_general_plan=False,
)
