"""Rule: what two layers compute from the same inputs is computed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.labels import Unlabelled, joined, labelled, layer_of
from planner.nodes import Node, topological


@dataclass(frozen=True)
class Shared:
    """A graph in which no two nodes differ in their layer alone."""

    root: Node
    twins: Mapping[Node, Node]  # nodes that are gone, and what stands for each


def share_subplans(root: Node) -> Shared:
    """f(x) of one layer = f(x) of another, where both are the same operator: one node, with the names of both layers.

    Random numbers belong to the operator that draws them (its key), so two dropouts of one column stay two.

    >>> from planner.nodes import Elementwise, Propagate, StaticColumn
    >>> from planner.spec import ValueType
    >>> x = StaticColumn("features", ValueType("vertex", (4,)))
    >>> mean, variance = (Propagate(x, "graph", layer=layer) for layer in ("mean", "variance"))
    >>> both = Elementwise("aten.add.Tensor", (mean, variance), (), x.output)
    >>> mean, variance = share_subplans(both).root.arguments
    >>> mean is variance, mean.layer
    (True, 'mean+variance')
    """
    bare = Unlabelled()
    layers: dict[Node, dict[str, None]] = {}
    order = topological(root)
    for node in order:
        layers.setdefault(bare(node), {})[layer_of(node)] = None
    if len(layers) == len(order):
        return Shared(root, {})
    kept: dict[Node, Node] = {}
    new: dict[Node, Node] = {}
    twins: dict[Node, Node] = {}
    for node in order:
        alike = bare(node)
        if alike in kept:
            twins[node] = kept[alike]
        else:
            kept[alike] = labelled(node.with_children(new), joined(layers[alike]))
        new[node] = kept[alike]
    return Shared(new[root], twins)
