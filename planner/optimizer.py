"""The driver: runs the forward rules to a fixpoint, checks what they return, and remembers what they did."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from planner.errors import PlanError
from planner.labels import Alike
from planner.nodes import Node, consumers, topological, transform
from planner.rules import FORWARD_RULES, LACKING, ForwardRule, Readers
from planner.rules.share_subplans import share_subplans
from planner.spec import Ability

MAX_PASSES = 50
"""A model of depth n settles in a few passes whatever n is; more than this is a rule at odds with another."""


Order = Sequence[Node]
"""The nodes of a graph, children first."""


@dataclass(frozen=True)
class Firing:
    """One application of a rule."""

    rule: str
    before: Node
    after: Node


@dataclass(frozen=True)
class Declined:
    """A place where a rule did not fire, and what stopped it."""

    rule: str
    reason: str


@dataclass(frozen=True)
class Rewritten:
    """A rewritten forward graph and its history."""

    root: Node
    firings: tuple[Firing, ...]
    declined: tuple[Declined, ...]


def optimize(
    root: Node,
    disabled: Collection[str] = (),
    abilities: Collection[Ability] = (),
    rules: Sequence[ForwardRule] = FORWARD_RULES,
) -> Rewritten:
    """Apply the enabled forward rules until nothing changes.

    Args:
        root: the forward graph.
        disabled: names of rules to leave out.
        abilities: of the engine; rules that need others are left out.
        rules: those on single nodes, in the order in which they are tried.

    Raises:
        PlanError: a rule changed an operator's output type, or the rules undo one another.
    """
    enabled = [rule for rule in rules if rule.name not in disabled]
    able = [rule for rule in enabled if rule.needs is None or rule.needs in abilities]
    firings: list[Firing] = []
    recorded, alike = [_Recorded(rule, firings) for rule in able], Alike()
    order: Order = topological(root)
    seen = {root}
    for _ in range(MAX_PASSES):
        before = root
        if share_subplans.__name__ not in disabled:
            root, order = _shared(root, order, alike, firings)
        for rule in recorded:
            root, order = rule.over(root, order)
        if root is before:
            return Rewritten(root, tuple(firings), _reasons(order, enabled, able))
        if root in seen:
            break
        seen.add(root)
    raise PlanError(f"the rules do not settle; the last to fire was {firings[-1].rule}; disable it to go on")


class _Recorded:
    """A rule, with its output checked and its firings remembered."""

    def __init__(self, rule: ForwardRule, firings: list[Firing]) -> None:
        self.rule, self.firings = rule, firings
        # Nodes on which it did not fire, and never will: rules are pure, and nodes immutable.
        self._idle: set[Node] = set()
        self._readers: Readers | None = None  # of the graph at hand, once asked for
        self._root: Node | None = None

    def over(self, root: Node, order: Order) -> tuple[Node, Order]:
        """The graph with the rule applied to every node. Where it fires on none of its nodes, nothing is built anew."""
        self._root, self._readers = root, None
        if all(self._fired(node) is None for node in order):
            return root, order
        root = transform(root, self._record)
        return root, topological(root)

    def _record(self, node: Node) -> Node | None:
        after = self._fired(node)
        if after is not None:
            self.firings.append(Firing(self.rule.name, node, after))
        return after

    def _fired(self, node: Node) -> Node | None:
        if node in self._idle:
            return None
        after = self.rule.apply(node)
        if after is None or after is node:
            self._idle.add(node)
            return None
        if self.rule.pays is not None and not self.rule.pays(node, self._read_by()):
            return None
        if after.output != node.output:
            raise PlanError(f"rule {self.rule.name} turned {node.output} into {after.output} at {type(node).__name__}")
        return after

    def _read_by(self) -> Readers:
        assert self._root is not None  # set by `over`
        if self._readers is None:
            self._readers = consumers(self._root)
        return self._readers


def _shared(root: Node, order: Order, alike: Alike, firings: list[Firing]) -> tuple[Node, Order]:
    """The graph with what layers have in common once, also what the rules have just made alike."""
    found = share_subplans(root, order, alike)
    firings += [Firing(share_subplans.__name__, node, shared) for node, shared in found.twins.items()]
    return (found.root, topological(found.root)) if found.twins else (root, order)


def _reasons(order: Order, enabled: Sequence[ForwardRule], able: Sequence[ForwardRule]) -> tuple[Declined, ...]:
    """Why the enabled rules left what they left; the same words once."""
    found: dict[Declined, None] = {}
    for rule in enabled:
        declined = rule.declined if rule in able else partial(_lacking, rule)
        reasons = (declined(node) for node in order)
        found |= {Declined(rule.name, reason): None for reason in reasons if reason is not None}
    return tuple(found)


def _lacking(rule: ForwardRule, node: Node) -> str | None:
    """What an engine cannot do, where a rule would have fired if it could."""
    if rule.needs is None or rule.apply(node) is None:
        return None
    return f"{LACKING[rule.needs]}; the neighbourhoods of layer {getattr(node, 'layer', '') or '?'} are collected"
