"""Names of the layers that nodes come from: labels for explain and errors, which do not change what a node computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import is_, itemgetter
from typing import Any

from planner.nodes import Node, altered, replaced

NAMED = 3  # most layers that the label of a shared node names
MORE = "..."
ITSELF = "the model itself"  # the name of a layer for calls in the model's own `forward`


class Alike:
    """A search for nodes that differ only in their layers, and so compute the same."""

    def __init__(self) -> None:
        self._first: dict[Node, Node] = {}  # node -> the first node like it
        self._seen: dict[Any, Node] = {}  # identity without the layer -> the first node with it
        self._readers: dict[type[Node], Callable[[tuple[Any, ...]], tuple[Any, ...]]] = {}  # read identities, by class

    def __call__(self, root: Node) -> Node:
        """Return the first node like this one among all nodes seen so far. It may be the node itself."""
        found = self._first.get(root)
        if found is not None:
            return found
        stack = [root]
        while stack:
            node = stack[-1]
            children = node.children
            firsts = [*map(self._first.get, children)]
            if all(map(is_, firsts, children)):  # true for most nodes, and the fastest case
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
        """Return a node's identity without its layer."""
        kind = type(node)
        if kind not in self._readers:
            places = map(kind.__match_args__.index, _fields_but_layer(kind))
            self._readers[kind] = itemgetter(0, *(1 + place for place in places))
        return self._readers[kind](node.identity)


def _fields_but_layer(kind: type[Node]) -> tuple[str, ...]:
    return tuple(name for name in kind.__match_args__ if name != "layer")


def layer_of(node: Node) -> str:
    """Return the names of the layers that a node comes from, or "" for a node without layers, such as a column."""
    return getattr(node, "layer", "")


def place(node: Node) -> str:
    """Return the layers that a node comes from, in words.

    >>> from planner.nodes import Propagate, StaticColumn
    >>> from planner.spec import ValueType
    >>> x = StaticColumn("features", ValueType("vertex", (4,)))
    >>> place(Propagate(x, "graph", layer="convs.0")), place(Propagate(x, "graph"))
    ('layer convs.0', 'the model itself')
    """
    layer = layer_of(node)
    return f"layer {layer}" if layer else ITSELF


def labelled(node: Node, layer: str) -> Node:
    """Return the same operator with another label."""
    return node if layer_of(node) == layer else altered(node, layer=layer)  # nodes without a layer have the label ""


def joined(layers: Iterable[str]) -> str:
    """Return one label for a node that several layers share.

    >>> joined(["mean", "variance", "mean"]), joined(["mean+variance", "c", "d"]), joined(["a+b+c+...", "c"])
    ('mean+variance', 'mean+variance+c+...', 'a+b+c+...')
    """
    names = list(dict.fromkeys(name for layer in layers for name in layer.split("+") if name))
    more = MORE in names or len(names) > NAMED
    return "+".join([name for name in names if name != MORE][:NAMED] + [MORE] * more)
