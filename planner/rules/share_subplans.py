"""Compute a value once if several layers compute it from the same inputs."""

from __future__ import annotations

from collections.abc import Sequence

from planner.labels import Alike, joined, labelled, layer_of
from planner.nodes import Node, topological
from planner.rule import GraphRule, Joined


def share_subplans(root: Node, order: Sequence[Node] | None = None, alike: Alike | None = None) -> Joined:
    """f(x) of one layer = f(x) of another, if both are the same operator. One node takes the place of both.

    It has the names of both layers. Random numbers belong to the key of the operator that draws them, so two dropouts of
    one column stay two nodes.

    Args:
        root: The root of the graph.
        order: The nodes of the graph, children first, if known.
        alike: The search for nodes that compute the same, with its findings so far.

    >>> from planner.nodes import Elementwise, Propagate, StaticColumn
    >>> from planner.printer import tree
    >>> from planner.spec import ValueType
    >>> x = StaticColumn("features", ValueType("vertex", (4,)))
    >>> mean, variance = (Propagate(x, "graph", layer=layer) for layer in ("mean", "variance"))
    >>> both = Elementwise("aten.add.Tensor", (mean, variance), (), x.output)
    >>> for line in tree(both): print(line)
    Elementwise(add)                                                  dl    [V, 4]
    + Propagate(sum, edges=graph, layer=mean, features)               graph [V, 4]
    + Propagate(sum, edges=graph, layer=variance, features)           graph [V, 4]
    >>> for line in tree(share_subplans(both).root): print(line)
    Elementwise(add)                                                  dl    [V, 4]
    Propagate(sum, edges=graph, layer=mean+variance, features)        graph [V, 4]
    """
    order = order or topological(root)
    alike = alike or Alike()
    firsts = [*map(alike, order)]
    if len(set(firsts)) == len(order):
        return Joined(root, {})
    groups: dict[Node, list[Node]] = {}
    for node, first in zip(order, firsts, strict=True):
        groups.setdefault(first, []).append(node)
    kept: dict[Node, Node] = {}  # the node that stands for a group, by the group's first node
    new: dict[Node, Node] = {}
    for node, first in zip(order, firsts, strict=True):
        if first not in kept:
            moved, group = node.with_children(new), groups[first]
            kept[first] = labelled(moved, joined(map(layer_of, group))) if len(group) > 1 else moved
        new[node] = kept[first]
    return Joined(new[root], {twin: (group[0], kept[first]) for first, group in groups.items() for twin in group[1:]})


RULE = GraphRule(
    name="share_subplans",
    apply=share_subplans,
    idle="no two layers compute the same from the same inputs",
    in_general_plan=False,
)
