"""The layers that nodes come from: labels for explain and errors, and no part of what an operator computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import is_, itemgetter
from typing import Any

from planner.nodes import Node, altered, replaced

NAMED = 3  # layers that the label of a shared node names
MORE = "..."
ITSELF = "the model itself"  # where what is called in its own `forward` has no name


class Alike:
    """Finds the nodes that differ in their layers alone, and so compute the same."""

    def __init__(self) -> None:
        self._first: dict[Node, Node] = {}  # by node, the first one like it
        self._seen: dict[Any, Node] = {}  # those first ones, by all but their layers
        self._readers: dict[type[Node], Callable[[tuple[Any, ...]], tuple[Any, ...]]] = {}  # of identities

    def __call__(self, root: Node) -> Node:
        """The first node like this one that was asked for, or stood below one; perhaps itself."""
        found = self._first.get(root)
        if found is not None:
            return found
        stack = [root]
        while stack:
            node = stack[-1]
            children = node.children
            firsts = [*map(self._first.get, children)]
            if all(map(is_, firsts, children)):  # as most are, and needs least time
                key = self._identity(node)
            elif None in firsts:
                stack += [child for child, first in zip(children, firsts, strict=True) if first is None]
                continue
            else:
                key = tuple(replaced(self._identity(node), self._first))
            stack.pop()
            self._first[node] = self._seen.setdefault(key, node)
        return self._first[root]

    def _identity(self, node: Node) -> tuple[Any, ...]:
        """A node's, but for its layer."""
        kind = type(node)
        if kind not in self._readers:
            places = map(kind.__match_args__.index, _fields_but_layer(kind))
            self._readers[kind] = itemgetter(0, *(1 + place for place in places))
        return self._readers[kind](node.identity)


def _fields_but_layer(kind: type[Node]) -> tuple[str, ...]:
    return tuple(name for name in kind.__match_args__ if name != "layer")


def layer_of(node: Node) -> str:
    """The layers a node comes from; "" for what has none, such as a column."""
    return getattr(node, "layer", "")


def place(node: Node) -> str:
    """The layers a node comes from, in words.

    >>> from planner.nodes import Propagate, StaticColumn
    >>> from planner.spec import ValueType
    >>> x = StaticColumn("features", ValueType("vertex", (4,)))
    >>> place(Propagate(x, "graph", layer="convs.0")), place(Propagate(x, "graph"))
    ('layer convs.0', 'the model itself')
    """
    layer = layer_of(node)
    return f"layer {layer}" if layer else ITSELF


def labelled(node: Node, layer: str) -> Node:
    """The same operator with another label."""
    return node if layer_of(node) == layer else altered(node, layer=layer)  # those without are equal


def joined(layers: Iterable[str]) -> str:
    """One label for what several layers share.

    >>> joined(["mean", "variance", "mean"]), joined(["mean+variance", "c", "d"]), joined(["a+b+c+...", "c"])
    ('mean+variance', 'mean+variance+c+...', 'a+b+c+...')
    """
    names = list(dict.fromkeys(name for layer in layers for name in layer.split("+") if name))
    more = MORE in names or len(names) > NAMED
    return "+".join([name for name in names if name != MORE][:NAMED] + [MORE] * more)
