"""Rule: what no epoch changes is computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from planner.edge_nodes import EdgeDropout
from planner.labels import Alike, layer_of
from planner.linear_maps import mapped, pulled
from planner.nodes import Aggregate, Dropout, GraphOperator, Node, Parameter, StaticColumn, topological, transform

REPAID = 100
"""Times as wide as what it spares may a column be that is summed once: 50 epochs in which both passes are spared a sum."""


@dataclass(frozen=True)
class Hoisted:
    """A forward graph that reads what is computed once as static columns."""

    root: Node
    columns: Mapping[Node, StaticColumn]  # by what they stand for in it; two layers may have the same
    held: Mapping[Node, StaticColumn]  # by what is to be computed, of the first layer that has it


def hoist_invariant(root: Node) -> Hoisted:
    """f(static) = a static column, where f sums along edges and has no parameter and no random number.

    A linear map that stands before such a sum changes places with it: (A x) W needs A x, which is the same in every epoch.
    """
    exposed, facts = _exposed(root, lambda _: True)
    columns: dict[Node, StaticColumn] = {}
    held: dict[Node, StaticColumn] = {}
    alike = Alike()
    order = topological(exposed)
    for node in _outermost(order, facts):
        column = StaticColumn(f"hoisted_{len(held) + 1}", node.output)
        columns[node] = held.setdefault(alike(node), column)
    return Hoisted(substituted(order, columns), columns, held)


def read_hoisted(root: Node, held: Mapping[Node, StaticColumn]) -> Node:
    """Another graph over the same inputs, reading what it has in common with the hoisted one. It hoists no more.

    Args:
        root: that graph.
        held: see `Hoisted`.
    """
    if not held:
        return root
    alike, common = Alike(), topological(*held)
    first = {alike(node) for node in common}
    exposed, facts = _exposed(root, lambda summed: alike(summed) in first)
    columns = {alike(node): column for node, column in held.items()}
    order = topological(exposed)
    found = {node: columns.get(alike(node)) for node in order if facts.can_be_hoisted(node)}
    return substituted(order, {node: column for node, column in found.items() if column is not None})


def declined(root: Node) -> list[str]:
    """What the first sums along edges depend on, a reason for each layer that has some of them.

    Args:
        root: of a graph in which nothing could be hoisted.
    """
    facts, found = _Facts(), {}
    for node in topological(root):
        facts.learn(node)
        if facts.is_first_sum(node) and not facts.is_invariant(node):
            found.setdefault(layer_of(node), _depends_on(node))
    return [f"layer {layer or '?'}: what it sums over edges {reason}" for layer, reason in found.items()]


def _depends_on(node: Node) -> str:
    """What makes a node differ from epoch to epoch."""
    below = topological(node)
    if any(isinstance(one, (Dropout, EdgeDropout)) for one in below):
        return "comes after a dropout, which draws anew in every epoch"
    names = (one.name for one in below if isinstance(one, Parameter) and one.trainable)
    return f"depends on {next(names, 'parameters')}, which every epoch changes"


def substituted(order: Sequence[Node], columns: Mapping[Node, StaticColumn]) -> Node:
    """The graph of these nodes, children first, with columns in place of what they hold."""
    if not columns:
        return order[-1]
    new: dict[Node, Node] = {}
    for node in order:
        new[node] = columns.get(node) or node.with_children(new)
    return new[order[-1]]


def _exposed(root: Node, wanted: Callable[[Node], bool]) -> tuple[Node, _Facts]:
    """The graph with linear maps after sums, where that leaves a sum that is wanted and can be hoisted; its facts, too."""
    facts, order = _Facts(), topological(root)
    for node in order:
        facts.learn(node)
    if not any(facts.is_invariant(x) for x in map(mapped, order) if x is not None):
        return root, facts  # a change would begin at one of these

    def change(node: Node) -> Node | None:
        facts.learn(node)
        x = mapped(node)
        if x is None or not facts.is_invariant(x):  # what no sum of it can make good
            return None
        product = pulled(node)
        assert product is not None  # something is mapped
        summed = product.arguments[0]
        pays = summed.output.width <= REPAID * node.output.width
        return product if pays and facts.can_be_hoisted(summed) and wanted(summed) else None

    return transform(root, change, order), facts


def _outermost(order: Sequence[Node], facts: _Facts) -> list[Node]:
    """What can be hoisted and is no part of anything that can, children first."""
    found: set[Node] = set()
    seen: set[Node] = set()
    stack = [order[-1]]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if facts.can_be_hoisted(node):
            found.add(node)
        else:
            stack.extend(node.children)
    return [node for node in order if node in found]


class _Facts:
    """What is known of nodes, learnt from their children's."""

    def __init__(self) -> None:
        self._invariant: dict[Node, bool] = {}
        self._sums: dict[Node, bool] = {}  # whether neighbours take part

    def can_be_hoisted(self, node: Node) -> bool:
        """Whether it is a column that is the same in every epoch and takes more than arithmetic on static columns."""
        self.learn(node)
        if not self._invariant[node] or not self._sums[node]:
            return False
        return node.output.rows == "vertex" and node.output.dtype == "float32"

    def is_first_sum(self, node: Node) -> bool:
        """Whether it is the first operator, on the way from the inputs, in which neighbours take part."""
        return self._sums[node] and not any(self._sums[child] for child in node.children)

    def is_invariant(self, node: Node) -> bool:
        """Whether it is the same in every epoch."""
        self.learn(node)
        return self._invariant[node]

    def learn(self, node: Node) -> None:
        """Note a node. Those below it are few that are not known yet: whoever asks goes through a graph children first."""
        if node in self._invariant:
            return
        for child in node.children:
            self.learn(child)
        varies = isinstance(node, (Parameter, Dropout, EdgeDropout))
        self._invariant[node] = not varies and all(self._invariant[child] for child in node.children)
        is_sum = isinstance(node, (GraphOperator, Aggregate))
        self._sums[node] = is_sum or any(self._sums[child] for child in node.children)
