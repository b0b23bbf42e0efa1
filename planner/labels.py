"""The layers that nodes come from: labels for explain and errors, and no part of what an operator computes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from functools import cache
from typing import Any

from planner.nodes import Node

NAMED = 3  # layers that the label of a shared node names
MORE = "..."


class Alike:
    """Finds the nodes that differ in their layers alone, and so compute the same."""

    def __init__(self) -> None:
        self._first: dict[Node, Node] = {}  # by node, the first one like it
        self._seen: dict[Any, Node] = {}  # those first ones, by all but their layers

    def __call__(self, root: Node) -> Node:
        """The first node like this one that was asked for, or stood below one; perhaps itself."""
        stack = [root]
        while stack:
            node = stack[-1]
            unknown = [child for child in node.children if child not in self._first]
            stack.extend(unknown)
            if not unknown:
                stack.pop()
                self._first[node] = self._seen.setdefault(self._key(node), node)
        return self._first[root]

    def _key(self, node: Node) -> Any:
        return type(node), *[self._part(getattr(node, name)) for name in _fields_but_layer(type(node))]

    def _part(self, value: Any) -> Any:
        """A field's value as part of a key, in which 1, 1.0 and True are different."""
        kind = type(value)
        if kind is tuple:
            return tuple(map(self._part, value))
        return value if kind is str else self._first[value] if isinstance(value, Node) else (kind, value)


@cache
def _fields_but_layer(kind: type[Node]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name != "layer")


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
