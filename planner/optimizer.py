"""The driver: runs the forward rules to a fixpoint, checks what they return, and remembers what they did."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from planner.errors import PlanError
from planner.labels import Alike, place
from planner.nodes import Aggregate, Node, consumers, topological
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


def optimize(
    root: Node,
    disabled: Collection[str] = (),
    abilities: Collection[Ability] = (),
    rules: Sequence[ForwardRule] = FORWARD_RULES,
    says_why: bool = True,
) -> Rewritten:
    """Apply the enabled forward rules until nothing changes.

    Args:
        root: the forward graph.
        disabled: names of rules to leave out.
        abilities: of the engine; rules that need others are left out.
        rules: those on single nodes, in the order in which they are tried.
        says_why: whether it shall say what stopped the others.

    Raises:
        PlanError: a rule changed an operator's output type, or the rules undo one another.
    """
    enabled = [rule for rule in rules if rule.name not in disabled]
    able = [rule for rule in enabled if rule.needs is None or rule.needs in abilities]
    firings: list[Firing] = []
    walks, alike = _walks(able, firings), Alike()
    order: Order = topological(root)
    seen = {root}
    for _ in range(MAX_PASSES):
        fired = len(firings)
        if share_subplans.__name__ not in disabled:
            root, order = _shared(root, order, alike, firings)
        for walk in walks:
            root, order = walk.over(root, order)
        if len(firings) == fired:
            return Rewritten(root, tuple(firings), _reasons(order, enabled, able) if says_why else ())
        if root in seen:
            break
        seen.add(root)
    raise _unsettled(firings)


class _Walk:
    """Rules that are tried on each node in one walk, with their output checked and their firings remembered."""

    def __init__(self, rules: Sequence[ForwardRule], firings: list[Firing]) -> None:
        self.rules, self.firings = rules, firings
        self._on: dict[type[Node], list[ForwardRule]] = {}  # by kind of node
        # Nodes on which none of them fired, and none ever will: rules are pure, and nodes immutable.
        self._idle: set[Node] = set()
        self._order: Order = ()  # of the graph at hand
        self._readers: dict[Node, list[Node]] | None = None  # in it, once asked for

    def over(self, root: Node, order: Order) -> tuple[Node, Order]:
        """The graph with the rules applied to every node. Where none fires on any of them, nothing is built anew."""
        self._order, self._readers = order, None
        if not any(self._fired(node) for node in order if node not in self._idle):
            return root, order
        new: dict[Node, Node] = {}
        for node in order:
            moved = node.with_children(new)
            if (
                self._readers is not None and moved is not node
            ):  # read as before, for all that this walk has done so far
                self._readers.setdefault(moved, self._readers[node])
            new[node] = self._record(moved) or moved
        return new[root], topological(new[root])

    def _record(self, node: Node) -> Node | None:
        fired = [] if node in self._idle else self._fired(node)
        self.firings += fired
        return fired[-1].after if fired else None

    def _fired(self, node: Node) -> list[Firing]:
        """What the rules make of a node, one after the other."""
        found: list[Firing] = []
        first, idle, kind = node, True, type(node)
        if kind not in self._on:
            self._on[kind] = [rule for rule in self.rules if issubclass(kind, rule.on)]
        for rule in self._on[kind]:
            after = rule.apply(node)
            if after is None or after is node:
                continue
            idle = False
            if rule.pays is not None and not rule.pays(node, self._read_by()):
                continue
            if after.output != node.output:
                name = type(node).__name__
                raise PlanError(f"rule {rule.name} turned {node.output} into {after.output} at {name}")
            found.append(Firing(rule.name, node, after))
            node = after
        if idle:
            self._idle.add(node)
        if found and node is first:
            raise _unsettled(found)
        return found

    def _read_by(self) -> Readers:
        if self._readers is None:
            self._readers = consumers(self._order)
        return self._readers


def _walks(rules: Sequence[ForwardRule], firings: list[Firing]) -> list[_Walk]:
    """Rules that follow one another walk together; one that asks who reads a node sees a graph that no other is changing."""
    return [_Walk(list(group), firings) for _, group in groupby(rules, lambda rule: rule.pays and rule.name)]


def _unsettled(firings: Sequence[Firing]) -> PlanError:
    return PlanError(f"the rules do not settle; the last to fire was {firings[-1].rule}; disable it to go on")


def _shared(root: Node, order: Order, alike: Alike, firings: list[Firing]) -> tuple[Node, Order]:
    """The graph with what layers have in common once, also what the rules have just made alike."""
    found = share_subplans(root, order, alike)
    firings += [Firing(share_subplans.__name__, node, kept, first) for node, (first, kept) in found.twins.items()]
    return (found.root, topological(found.root)) if found.twins else (root, order)


def _reasons(order: Order, enabled: Sequence[ForwardRule], able: Sequence[ForwardRule]) -> tuple[Declined, ...]:
    """Why the enabled rules left what they left; the same words once."""
    found: dict[Declined, None] = {}
    there = set(map(type, order))
    for rule in enabled:
        declined = rule.declined if rule in able else partial(_lacking, rule)
        kinds = {kind for kind in there if issubclass(kind, rule.on)}
        reasons = ((node, declined(node)) for node in order if type(node) in kinds)
        found |= {
            Declined(rule.name, why, isinstance(node, Aggregate)): None for node, why in reasons if why is not None
        }
    return tuple(found)


def _lacking(rule: ForwardRule, node: Node) -> str | None:
    """What an engine cannot do, where a rule would have fired if it could."""
    if rule.needs is None or rule.apply(node) is None:
        return None
    return f"{LACKING[rule.needs]}; the neighbourhoods of {place(node)} are collected"
