"""The driver of rules on nodes. It applies them until nothing changes, checks their results, and records firings."""

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
"""The most passes over a graph. A few are enough for a model of any depth; if more are needed, rules undo one another."""

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
        root: The root of the forward graph.
        disabled: The names of the rules to leave out.
        abilities: The abilities of the engine. Rules that need other abilities are left out.
        rules: The rules, in the order in which they are tried. Rules of other phases are left out.
        says_why: True if the result shall have the reasons why rules did not fire.
        hook: A function that is called after each firing.

    Raises:
        PlanError: If a rule changes an operator's type of output, or rules undo one another.
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
    """Return True if an engine with these abilities can run the operators that a rule makes."""
    return not isinstance(rule, NodeRule) or rule.needs is None or rule.needs in abilities


def _walks(rules: Sequence[Rule]) -> Iterator[_Joining | _Walk]:
    """Yield the walks over the graph. Consecutive rules share a walk.

    A rule that joins nodes has a walk of its own. So has a rule with `pays`: it asks which nodes read a node, so no other
    rule may change the graph meanwhile.
    """
    for _, group in groupby(rules, lambda rule: rule.name if isinstance(rule, GraphRule) or _pays(rule) else None):
        found = list(group)
        if isinstance(found[0], GraphRule):
            yield _Joining(found[0])
        else:
            yield _Walk([rule for rule in found if isinstance(rule, NodeRule)])


def _pays(rule: Rule) -> bool:
    return isinstance(rule, NodeRule) and rule.pays is not None


Walked = tuple[Node, Order, list[Firing]]
"""The root of a graph, its nodes in order, and the firings that led to it."""


class _Joining:
    """A walk of a rule that joins nodes that compute the same, also if other rules have just made them so."""

    def __init__(self, rule: GraphRule) -> None:
        self._rule, self._alike = rule, Alike()

    def over(self, root: Node, order: Order) -> Walked:
        """Return the graph with the rule applied."""
        found = self._rule.apply(root, order, self._alike)
        if not found.twins:
            return root, order, []
        firings = [Firing(self._rule.name, node, kept, first) for node, (first, kept) in found.twins.items()]
        return found.root, topological(found.root), firings


class _Walk:
    """A walk in which several rules are tried on each node, and their results are checked."""

    def __init__(self, rules: Sequence[NodeRule]) -> None:
        self._rules = rules
        self._on: dict[type[Node], list[NodeRule]] = {}  # by kind of node
        # Nodes on which no rule of the walk fires. None ever will, because rules are pure and nodes immutable.
        self._idle: set[Node] = set()
        self._order: Order = ()  # the nodes of the graph at hand
        self._readers: dict[Node, list[Node]] | None = None  # the readers of its nodes, found when a rule asks

    def over(self, root: Node, order: Order) -> Walked:
        """Return the graph with the rules applied to every node. If none fires, it is the same graph."""
        self._order, self._readers = order, None
        if not any(self._fired(node) for node in order if node not in self._idle):
            return root, order, []
        firings: list[Firing] = []
        new: dict[Node, Node] = {}
        for node in order:
            moved = node.with_children(new)
            if self._readers is not None and moved is not node:
                self._readers.setdefault(moved, self._readers[node])  # the readers of the node that it replaces
            fired = [] if moved in self._idle else self._fired(moved)
            firings += fired
            new[node] = fired[-1].after if fired else moved
        return new[root], topological(new[root]), firings

    def _fired(self, node: Node) -> list[Firing]:
        """Apply the rules to a node, each to the result of the one before, and return the firings."""
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
        """Return the rules that are tried on a kind of node."""
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
    """Return the reasons why the enabled rules did not fire, each text once for a rule."""
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
    """Return the ability that an engine lacks, in words, if a rule would have fired on a node with it. Else None."""
    if rule.needs is None or rule.apply(node) is None:
        return None
    return f"{LACKING[rule.needs]}; the neighbourhoods of {place(node)} are collected"
