"""The history of a graph: the firings of rules, and the reasons why other rules did not fire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from planner.nodes import Node

Hook = Callable[[str, Any, Any], None]
"""A function that is called after each firing, with the rule's name and the node or draft before and after it."""


@dataclass(frozen=True)
class Firing:
    """One application of a rule."""

    rule: str
    before: Node
    after: Node
    beside: Node | None = None  # another operator that `after` replaces too


@dataclass(frozen=True)
class Declined:
    """A rule that did not fire somewhere, and the reason."""

    rule: str
    reason: str
    collects: bool = False  # True if neighbourhoods are collected because of that


@dataclass(frozen=True)
class Rewritten:
    """A rewritten forward graph and its history."""

    root: Node
    firings: tuple[Firing, ...]
    declined: tuple[Declined, ...]
