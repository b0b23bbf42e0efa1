"""The layers that nodes come from: labels for explain and errors, and no part of what an operator computes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from planner.nodes import Node

NAMED = 3  # layers that the label of a shared node names
MORE = "..."


class Unlabelled:
    """Nodes as if of no layer. What two layers compute alike is then one node."""

    def __init__(self) -> None:
        self._known: dict[Node, Node] = {}

    def __call__(self, root: Node) -> Node:
        """The same operators without labels; nodes that were asked for before are not walked again."""
        stack = [root]
        while stack:
            node = stack[-1]
            unknown = [child for child in node.children if child not in self._known]
            stack.extend(unknown)
            if not unknown:
                stack.pop()
                if node not in self._known:
                    self._known[node] = labelled(node.with_children(self._known), "")
        return self._known[root]


def layer_of(node: Node) -> str:
    """The layers a node comes from; "" for what has none, such as a column."""
    return getattr(node, "layer", "")


def labelled(node: Node, layer: str) -> Node:
    """The same operator with another label."""
    return node if layer_of(node) == layer else replace(node, layer=layer)  # type: ignore[call-arg]  # those without are equal


def joined(layers: Iterable[str]) -> str:
    """One label for what several layers share.

    >>> joined(["mean", "variance", "mean"]), joined(["mean+variance", "c", "d"]), joined(["a+b+c+...", "c"])
    ('mean+variance', 'mean+variance+c+...', 'a+b+c+...')
    """
    names = list(dict.fromkeys(name for layer in layers for name in layer.split("+") if name))
    more = MORE in names or len(names) > NAMED
    return "+".join([name for name in names if name != MORE][:NAMED] + [MORE] * more)
