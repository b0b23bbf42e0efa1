"""Compute once, before the first epoch, what no epoch changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.draft import Draft
from planner.history import Firing
from planner.labels import ITSELF, Alike, layer_of, place
from planner.linear_maps import mapped, pulled
from planner.nodes import Aggregate, Dropout, GraphOperator, MatMul, Node, Parameter, StaticColumn, topological
from planner.rule import DraftRule
from planner.rules.hold_sparse import pays_sparse
from planner.steps.edge_dropout import EdgeDropout

MOVED = " (its linear map moved behind the sum)"
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

    >>> from planner.nodes import Propagate
    >>> from planner.printer import tree
    >>> from planner.spec import ValueType
    >>> x, w = StaticColumn("features", ValueType("vertex", (4,))), Parameter("w", (9, 4))
    >>> before = MatMul("aten.linear.default", (Propagate(x, "graph"), w), (), ValueType("vertex", (9,)))
    >>> for line in tree(before): print(line)
    MatMul(linear, w)                                                 dl    [V, 9]
    Propagate(sum, edges=graph, features)                             graph [V, 4]
    >>> for line in tree(hoist_invariant(before).root): print(line)
    MatMul(linear, w, hoisted_1)                                      dl    [V, 9]
    """
    order, facts = topological(root), _Facts()
    products = _exposed(order, facts, lambda _: True)
    columns: dict[Node, StaticColumn] = {}
    held: dict[Node, StaticColumn] = {}
    alike = Alike()
    for node in _outermost(order, products, facts):
        column = StaticColumn(f"hoisted_{len(held) + 1}", node.output)
        columns[node] = held.setdefault(alike(node), column)
    return Hoisted(_substituted(order, products, columns), columns, held)


def read_hoisted(root: Node, held: Mapping[Node, StaticColumn]) -> Node:
    """Another graph over the same inputs, reading what it has in common with the hoisted one. It hoists no more.

    Args:
        root: that graph.
        held: see `Hoisted`.
    """
    if not held:
        return root
    order, facts, alike = topological(root), _Facts(), Alike()
    columns = {alike(node): column for node, column in held.items()}
    products = _exposed(order, facts, lambda summed: alike(summed) in columns)
    wanted = [node for node in (*order, *map(_summed, products.values())) if facts.can_be_hoisted(node)]
    return _substituted(order, products, {node: columns[alike(node)] for node in wanted if alike(node) in columns})


def declined(root: Node) -> list[str]:
    """What the first sums along edges depend on, a reason for each layer that has some of them.

    Args:
        root: of a graph in which nothing could be hoisted.
    """
    facts = _Facts()
    found: dict[str, str] = {}
    for node in topological(root):
        facts.learn(node)
        if facts.is_first_sum(node) and not facts.is_invariant(node):
            found.setdefault(place(node), _too_wide(node, facts) or f"what it sums over edges {_depends_on(node)}")
    return [f"{where}: {reason}" for where, reason in found.items()]


def _too_wide(node: Node, facts: _Facts) -> str | None:
    """Of a sum whose linear map alone changes: what keeps that from changing places with the sum."""
    x = mapped(node)
    if x is None or not facts.is_invariant(x):
        return None
    given, summed = x.output.width, node.output.width
    return (
        f"before its linear map, what it sums over edges is the same in every epoch, but {given:,} numbers wide in place of "
        f"{summed:,}; a sum is held where it is up to {REPAID} times as wide"
    )


def _depends_on(node: Node) -> str:
    """What makes a node differ from epoch to epoch."""
    below = topological(node)
    if any(isinstance(one, (Dropout, EdgeDropout)) for one in below):
        return "comes after a dropout, which draws anew in every epoch"
    names = (one.name for one in below if isinstance(one, Parameter) and one.trainable)
    return f"depends on {next(names, 'parameters')}, which every epoch changes"


def _substituted(order: Sequence[Node], products: Mapping[Node, MatMul], columns: Mapping[Node, StaticColumn]) -> Node:
    """The graph of these nodes, children first, with products in place of sums, and columns in place of what they hold."""
    if not columns:
        return order[-1]
    new: dict[Node, Node] = dict(columns)  # of sums that products read, too, which are not among these nodes
    for node in order:
        if node not in columns:
            new[node] = products.get(node, node).with_children(new)
    return new[order[-1]]


def _exposed(order: Sequence[Node], facts: _Facts, wanted: Callable[[Node], bool]) -> dict[Node, MatMul]:
    """The products (A x) W that stand for A (x W) where that leaves a sum A x that is wanted and can be hoisted."""
    products: dict[Node, MatMul] = {}
    for node in order:
        facts.learn(node)
        x = mapped(node)
        if x is None or not facts.is_invariant(x):  # what no sum of it can make good
            continue
        product = pulled(node)
        assert product is not None  # something is mapped
        summed = _summed(product)
        pays = summed.output.width <= REPAID * node.output.width
        if pays and facts.can_be_hoisted(summed) and wanted(summed):
            products[node] = product
    return products


def _summed(product: MatMul) -> Node:
    """The A x of (A x) W."""
    x: Node = product.arguments[0]
    return x


def _outermost(order: Sequence[Node], products: Mapping[Node, MatMul], facts: _Facts) -> list[Node]:
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
            stack.extend(products.get(node, node).children)
    sums = (_summed(products[node]) if node in products else node for node in order)
    return [node for node in dict.fromkeys(sums) if node in found]


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


# --- the rule --------------------------------------------------------------------------------------------------------


def _apply(draft: Draft) -> Draft:
    """Both graphs, reading what training hoists as static columns."""
    found = hoist_invariant(draft.train)
    if not found.columns:
        return draft
    evaluate = found.root if draft.evaluate is draft.train else read_hoisted(draft.evaluate, found.held)
    firings = tuple(Firing(RULE.name, node, column) for node, column in found.columns.items())
    return replace(draft, train=found.root, evaluate=evaluate, held=found.held, firings=(*draft.firings, *firings))


def _where(draft: Draft, name: str) -> list[str]:
    """The layers whose sums are held, and which of these are of what a linear map read."""
    before = set(topological(draft.unhoisted or draft.train))
    firings = [firing.before for firing in draft.firings if firing.rule == name]
    return list(dict.fromkeys((layer_of(node) or ITSELF) + MOVED * (node not in before) for node in firings))


def _in_doubt(draft: Draft, fits: bool) -> bool:
    """A sum of sparse features that is held is no longer sparse: a linear map of it multiplies what is zero, too.

    And what is held takes memory.
    """
    sparse = "sparse_rows" in draft.options.traits.abilities and pays_sparse(draft.statistics)
    return bool(draft.plan.hoisted) and (sparse or not fits)


RULE = DraftRule(
    name="hoist_invariant",
    phase="rewritten",
    apply=_apply,
    where=_where,
    why_not=lambda draft: declined(draft.train),
    in_doubt=_in_doubt,
    idle="no sum over edges is the same in every epoch",
    in_general_plan=False,
    repaid_by_epochs=True,
)
