"""The history of a graph: which rules fired on it, and what stopped others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from planner.nodes import Node

Hook = Callable[[str, Any, Any], None]
"""A function that is called after each firing with the rule's name and what it changed, before and after."""


@dataclass(frozen=True)
class Firing:
    """One application of a rule."""

    rule: str
    before: Node
    after: Node
    beside: Node | None = None  # the operator with which that before became one


@dataclass(frozen=True)
class Declined:
    """A place where a rule did not fire, and what stopped it."""

    rule: str
    reason: str
    collects: bool = False  # whether it leaves neighbourhoods to be collected


@dataclass(frozen=True)
class Rewritten:
    """A rewritten forward graph and its history."""

    root: Node
    firings: tuple[Firing, ...]
    declined: tuple[Declined, ...]
