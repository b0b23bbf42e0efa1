"""The driver of rules on nodes: runs them to a fixpoint, checks what they return, and remembers what they did."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import groupby

from planner.errors import PlanError
from planner.history import Declined, Firing, Hook, Rewritten
from planner.labels import Alike, place
from planner.nodes import Aggregate, Node, consumers, topological
from planner.rule import LACKING, GraphRule, NodeRule, Readers, Rule
from planner.rules import RULES
from planner.spec import Ability

MAX_PASSES = 50
"""A model of depth n settles in a few passes whatever n is; more than this is a rule at odds with another."""

Order = Sequence[Node]
"""The nodes of a graph, children first."""


def optimize(
    root: Node,
    disabled: Collection[str] = (),
    abilities: Collection[Ability] = (),
    rules: Sequence[Rule] = RULES,
    says_why: bool = True,
    hook: Hook | None = None,
) -> Rewritten:
    """Apply the enabled rules on nodes until nothing changes.

    Args:
        root: the forward graph.
        disabled: names of rules to leave out.
        abilities: of the engine; rules that need others are left out.
        rules: in the order in which they are tried; those of later phases are left out.
        says_why: whether it shall say what stopped the others.
        hook: called after each firing.

    Raises:
        PlanError: a rule changed an operator's output type, or the rules undo one another.
    """
    enabled = [rule for rule in rules if rule.phase == "nodes" and rule.name not in disabled]
    firings: list[Firing] = []
    walks = list(_walks([rule for rule in enabled if _is_able(rule, abilities)]))
    order: Order = topological(root)
    seen = {root}
    for _ in range(MAX_PASSES):
        fired = len(firings)
        for walk in walks:
            root, order, found = walk.over(root, order)
            firings += found
            if hook is not None:
                for firing in found:
                    hook(firing.rule, firing.before, firing.after)
        if len(firings) == fired:
            return Rewritten(root, tuple(firings), _reasons(order, enabled, abilities) if says_why else ())
        if root in seen:
            break
        seen.add(root)
    raise _unsettled(firings)


def _is_able(rule: Rule, abilities: Collection[Ability]) -> bool:
    """True if an engine with these abilities can run what a rule makes."""
    return not isinstance(rule, NodeRule) or rule.needs is None or rule.needs in abilities


def _walks(rules: Sequence[Rule]) -> Iterator[_Joining | _Walk]:
    """Rules that follow one another walk together; one that asks who reads a node sees a graph that no other is changing."""
    for _, group in groupby(rules, lambda rule: rule.name if isinstance(rule, GraphRule) or _pays(rule) else None):
        found = list(group)
        if isinstance(found[0], GraphRule):
            yield _Joining(found[0])
        else:
            yield _Walk([rule for rule in found if isinstance(rule, NodeRule)])


def _pays(rule: Rule) -> bool:
    return isinstance(rule, NodeRule) and rule.pays is not None


Walked = tuple[Node, Order, list[Firing]]
"""A graph, its nodes in order, and what was fired to get there."""


class _Joining:
    """A rule that makes one of nodes that are alike, also those that other rules have just made alike."""

    def __init__(self, rule: GraphRule) -> None:
        self._rule, self._alike = rule, Alike()

    def over(self, root: Node, order: Order) -> Walked:
        """The graph with the rule applied."""
        found = self._rule.apply(root, order, self._alike)
        if not found.twins:
            return root, order, []
        firings = [Firing(self._rule.name, node, kept, first) for node, (first, kept) in found.twins.items()]
        return found.root, topological(found.root), firings


class _Walk:
    """Rules that are tried on each node in one walk, with their output checked."""

    def __init__(self, rules: Sequence[NodeRule]) -> None:
        self._rules = rules
        self._on: dict[type[Node], list[NodeRule]] = {}  # by kind of node
        # Nodes on which none of them fired, and none ever will: rules are pure, and nodes immutable.
        self._idle: set[Node] = set()
        self._order: Order = ()  # of the graph at hand
        self._readers: dict[Node, list[Node]] | None = None  # in it, once asked for

    def over(self, root: Node, order: Order) -> Walked:
        """The graph with the rules applied to every node. Where none fires on any of them, nothing is built anew."""
        self._order, self._readers = order, None
        if not any(self._fired(node) for node in order if node not in self._idle):
            return root, order, []
        firings: list[Firing] = []
        new: dict[Node, Node] = {}
        for node in order:
            moved = node.with_children(new)
            if self._readers is not None and moved is not node:
                self._readers.setdefault(moved, self._readers[node])  # read as before, for all that was done so far
            fired = [] if moved in self._idle else self._fired(moved)
            firings += fired
            new[node] = fired[-1].after if fired else moved
        return new[root], topological(new[root]), firings

    def _fired(self, node: Node) -> list[Firing]:
        """What the rules make of a node, one after the other."""
        found: list[Firing] = []
        first, idle = node, True
        for rule in self._asked(type(node)):
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

    def _asked(self, kind: type[Node]) -> list[NodeRule]:
        """The rules that are asked about a kind of node."""
        if kind not in self._on:
            self._on[kind] = [rule for rule in self._rules if issubclass(kind, rule.on)]
        return self._on[kind]

    def _read_by(self) -> Readers:
        if self._readers is None:
            self._readers = consumers(self._order)
        return self._readers


def _unsettled(firings: Sequence[Firing]) -> PlanError:
    return PlanError(f"the rules do not settle; the last to fire was {firings[-1].rule}; disable it to go on")


def _reasons(order: Order, enabled: Sequence[Rule], abilities: Collection[Ability]) -> tuple[Declined, ...]:
    """Why the enabled rules left what they left; the same words once."""
    found: dict[Declined, None] = {}
    there = set(map(type, order))
    for rule in enabled:
        if not isinstance(rule, NodeRule):
            continue
        declined = rule.declined if _is_able(rule, abilities) else partial(_lacking, rule)
        kinds = {kind for kind in there if issubclass(kind, rule.on)}
        reasons = ((node, declined(node)) for node in order if type(node) in kinds)
        found |= {
            Declined(rule.name, why, isinstance(node, Aggregate)): None for node, why in reasons if why is not None
        }
    return tuple(found)


def _lacking(rule: NodeRule, node: Node) -> str | None:
    """What an engine cannot do, where a rule would have fired if it could."""
    if rule.needs is None or rule.apply(node) is None:
        return None
    return f"{LACKING[rule.needs]}; the neighbourhoods of {place(node)} are collected"
