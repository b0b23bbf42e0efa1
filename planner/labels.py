"""The layers that nodes come from: labels for explain and errors, and no part of what an operator computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any

from planner.nodes import Interned, Node, altered
from planner.spec import ValueType

NAMED = 3  # layers that the label of a shared node names
MORE = "..."


class Alike:
    """Finds the nodes that differ in their layers alone, and so compute the same."""

    def __init__(self) -> None:
        self._first: dict[Node, Node] = {}  # by node, the first one like it
        self._seen: dict[Any, Node] = {}  # those first ones, by all but their layers
        self._readers: dict[type[Node], Callable[[Node], tuple[Any, ...]]] = {}  # of class and fields

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
        kind = type(node)
        if kind not in self._readers:
            self._readers[kind] = attrgetter("__class__", *_fields_but_layer(kind))
        return tuple(self._parts(self._readers[kind](node)))

    def _parts(self, values: tuple[Any, ...]) -> list[Any]:
        """Of the values of fields: parts of a key, in which 1, 1.0 and True are different."""
        parts: list[Any] = []
        for value in values:
            kind = type(value)
            if type(kind) is Interned:
                parts.append(self._first[value])
            elif kind is tuple:
                parts.append((*self._parts(value),) if value else value)
            elif kind is ValueType:
                parts.append((value.rows, value.shape, value.dtype, value.edges))
            else:
                parts.append(value if kind is str else (kind, value))
        return parts


@cache
def _fields_but_layer(kind: type[Node]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name != "layer")


def layer_of(node: Node) -> str:
    """The layers a node comes from; "" for what has none, such as a column."""
    return getattr(node, "layer", "")


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
