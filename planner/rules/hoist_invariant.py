"""Compute once, before the first epoch, the values that no epoch changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.choices.sums import REPAID_BY, Sums
from planner.draft import Draft
from planner.history import Firing
from planner.labels import ITSELF, Alike, layer_of, place
from planner.linear_maps import aggregates, mapped, pulled
from planner.nodes import Aggregate, Draw, Dropout, GraphOperator, MatMul, Node, Parameter, StaticColumn, topological
from planner.rule import DraftRule
from planner.rules.hold_sparse import pays_sparse
from planner.steps.edge_dropout import EdgeDropout
from planner.steps.learned_rows import LearnedRows

MOVED = " (its linear map moved behind the sum)"
OF_BATCHES = (
    'edges are drawn for each batch, so a sum along them differs from batch to batch; with fanouts "all" it would not'
)


@dataclass(frozen=True)
class Hoisted:
    """A forward graph in which static columns stand for the values that are computed once."""

    root: Node
    columns: Mapping[Node, StaticColumn]  # each with the node that it stands for; nodes of two layers may share one
    held: Mapping[Node, StaticColumn]  # each with the node that computes it, from the first layer that has such a node


def hoist_invariant(root: Node, sums: Sums | None = None) -> Hoisted:
    """f(static) = a static column, if f sums along edges and has no parameter and no random number.

    A linear map that comes before such a sum changes places with it. A(x W) = (A x) W, and A x is the same in every epoch.
    It does not where x is so wide that the epochs do not repay the seconds of A x.

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

    Args:
        root: The root of the graph of training.
        sums: The prices of sums along edges. None: A x always pays.
    """
    order, facts = topological(root), _Facts()
    products = _exposed(order, facts, lambda node, _: sums is None or is_repaid(node, sums))
    columns: dict[Node, StaticColumn] = {}
    held: dict[Node, StaticColumn] = {}
    alike = Alike()
    for node in _outermost(order, products, facts):
        column = StaticColumn(f"hoisted_{len(held) + 1}", node.output)
        columns[node] = held.setdefault(alike(node), column)
    return Hoisted(_substituted(order, products, columns), columns, held)


def read_hoisted(root: Node, held: Mapping[Node, StaticColumn]) -> Node:
    """Return another graph over the same inputs in which the columns in `held` stand for equal nodes.

    Nothing else is hoisted from it.

    Args:
        root: The root of that graph, such as the graph of evaluation.
        held: The columns that are computed once, as in `Hoisted`.
    """
    if not held:
        return root
    order, facts, alike = topological(root), _Facts(), Alike()
    columns = {alike(node): column for node, column in held.items()}
    products = _exposed(order, facts, lambda _, summed: alike(summed) in columns)
    wanted = [node for node in (*order, *map(_summed, products.values())) if facts.can_be_hoisted(node)]
    return _substituted(order, products, {node: columns[alike(node)] for node in wanted if alike(node) in columns})


def is_repaid(node: Node, sums: Sums) -> bool:
    """Return True if A x takes once at most the seconds that A(x W) takes in the epochs that have to repay it."""
    once, in_an_epoch = _once_and_in_an_epoch(node, sums)
    return once <= REPAID_BY * in_an_epoch


def _once_and_in_an_epoch(node: Node, sums: Sums) -> tuple[float, float]:
    """Return the seconds of A x, and those of an epoch's sums in a node A(x W), forward and, if it is trained, backward."""
    x, chain = mapped(node), aggregates(node)
    assert x is not None  # the callers have asked
    return sums.of_chain(chain, x.output.width), sums.of_chain(chain, node.output.width) * (2 if node.trained else 1)


def declined(root: Node, sums: Sums) -> list[str]:
    """Return the reasons why the first sums along edges differ from epoch to epoch, one for each layer with such a sum.

    Args:
        root: The root of a graph from which nothing could be hoisted.
        sums: The prices of sums along edges.
    """
    facts = _Facts()
    found: dict[str, str] = {}
    for node in topological(root):
        facts.learn(node)
        where = place(node)
        if where not in found and facts.is_first_sum(node) and not facts.is_invariant(node):
            found[where] = _not_repaid(node, facts, sums) or f"what it sums over edges {_depends_on(node)}"
    return [f"{where}: {reason}" for where, reason in found.items()]


def _not_repaid(node: Node, facts: _Facts, sums: Sums) -> str | None:
    """Return the reason why a linear map did not change places with a sum, if nothing else varies below it. Else None.

    The reason is that the epochs would not repay the wider sum that would be held.
    """
    x = mapped(node)
    if x is None or not facts.is_invariant(x):
        return None
    given, summed = x.output.width, node.output.width
    once, in_an_epoch = _once_and_in_an_epoch(node, sums)
    return (
        f"before its linear map, what it sums over edges is the same in every epoch, but {given:,} numbers wide in place of "
        f"{summed:,}: to sum it once is estimated to take as long as {once / in_an_epoch:,.0f} epochs of the narrower sums; "
        f"it is held if {REPAID_BY} epochs repay it"
    )


def _depends_on(node: Node) -> str:
    """Return the cause, in words, for which a node differs from epoch to epoch."""
    below = topological(node)
    if any(isinstance(one, (Dropout, EdgeDropout)) for one in below):
        return "comes after a dropout, which draws anew in every epoch"
    if any(isinstance(one, Draw) for one in below):
        return "depends on random numbers, which are drawn anew in every epoch"
    learned = next((one.parameter for one in below if isinstance(one, LearnedRows)), None)
    if learned is not None:
        return f"depends on the learned rows {learned}, which every epoch changes"
    names = (one.name for one in below if isinstance(one, Parameter) and one.trainable)
    return f"depends on {next(names, 'parameters')}, which every epoch changes"


def _substituted(order: Sequence[Node], products: Mapping[Node, MatMul], columns: Mapping[Node, StaticColumn]) -> Node:
    """Return the root of a graph in which products stand for sums, and columns for the nodes whose values they hold.

    Args:
        order: The nodes of the graph, children first.
        products: The product that takes the place of each of some sums.
        columns: The column that takes the place of each of some nodes.
    """
    if not columns:
        return order[-1]
    new: dict[Node, Node] = dict(columns)  # some are for sums that only the products read, which are not in `order`
    for node in order:
        if node not in columns:
            new[node] = products.get(node, node).with_children(new)
    return new[order[-1]]


def _exposed(order: Sequence[Node], facts: _Facts, wanted: Callable[[Node, Node], bool]) -> dict[Node, MatMul]:
    """Return the products (A x) W that may stand for sums A (x W), by the sum.

    These are the products whose A x can be hoisted and is wanted.

    Args:
        order: The nodes of a graph, children first.
        facts: The facts about nodes so far.
        wanted: A function of A (x W) and A x that returns True if the latter is wanted.
    """
    products: dict[Node, MatMul] = {}
    for node in order:
        facts.learn(node)
        x = mapped(node)
        if x is None or not facts.is_invariant(x):  # then no sum of it can be hoisted
            continue
        product = pulled(node)
        assert product is not None  # because `mapped` has found its x
        summed = _summed(product)
        if facts.can_be_hoisted(summed) and wanted(node, summed):
            products[node] = product
    return products


def _summed(product: MatMul) -> Node:
    """Return the A x of (A x) W."""
    x: Node = product.arguments[0]
    return x


def _outermost(order: Sequence[Node], products: Mapping[Node, MatMul], facts: _Facts) -> list[Node]:
    """Return the nodes that can be hoisted and lie below no other such node, children first."""
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
    """The facts about nodes that decide if they can be hoisted. Those of a node follow from those of its children."""

    def __init__(self) -> None:
        self._invariant: dict[Node, bool] = {}
        self._sums: dict[Node, bool] = {}  # True if neighbours take part in the node or below it

    def can_be_hoisted(self, node: Node) -> bool:
        """Return True if a node is a float column that depends on neighbours and is the same in every epoch."""
        self.learn(node)
        if not self._invariant[node] or not self._sums[node]:
            return False
        return node.output.rows == "vertex" and node.output.dtype == "float32"

    def is_first_sum(self, node: Node) -> bool:
        """Return True if neighbours take part in a node, but in no node below it. The node must be learnt."""
        return self._sums[node] and not any(self._sums[child] for child in node.children)

    def is_invariant(self, node: Node) -> bool:
        """Return True if the value of a node is the same in every epoch."""
        self.learn(node)
        return self._invariant[node]

    def learn(self, node: Node) -> None:
        """Note the facts about a node.

        It recurses into nodes below that are not known yet. They are few, because callers walk a graph children first.
        """
        if node in self._invariant:
            return
        for child in node.children:
            self.learn(child)
        varies = isinstance(node, (Parameter, Draw, EdgeDropout, LearnedRows))
        self._invariant[node] = not varies and all(self._invariant[child] for child in node.children)
        is_sum = isinstance(node, (GraphOperator, Aggregate)) and not isinstance(node, LearnedRows)
        self._sums[node] = is_sum or any(self._sums[child] for child in node.children)


# --- the rule --------------------------------------------------------------------------------------------------------


def _sums(draft: Draft) -> Sums:
    return Sums(draft.statistics, draft.options.pricing)


def _apply(draft: Draft) -> Draft:
    """Return the draft with static columns in both graphs for the values that training hoists."""
    if _sums_drawn_edges(draft):
        return draft.stopped(RULE.name, OF_BATCHES)
    found = hoist_invariant(draft.train, _sums(draft))
    if not found.columns:
        return draft
    evaluate = found.root if draft.evaluate is draft.train else read_hoisted(draft.evaluate, found.held)
    firings = tuple(Firing(RULE.name, node, column) for node, column in found.columns.items())
    return replace(draft, train=found.root, evaluate=evaluate, held=found.held, firings=(*draft.firings, *firings))


def _sums_drawn_edges(draft: Draft) -> bool:
    """Return True if sums are over edges that are drawn for each batch, so that no sum is the same in all batches."""
    sampling = draft.options.sampling
    return draft.is_batch and sampling is not None and not sampling.complete


def _where(draft: Draft, name: str) -> list[str]:
    """Return the layers whose sums are held. `MOVED` follows a layer whose linear map changed places with the sum."""
    before = set(topological(draft.unhoisted or draft.train))
    firings = [firing.before for firing in draft.firings if firing.rule == name]
    return list(dict.fromkeys((layer_of(node) or ITSELF) + MOVED * (node not in before) for node in firings))


def _in_doubt(draft: Draft, fits: bool) -> bool:
    """Return True if the plan without the rule may be the better one.

    A held sum of sparse features is not sparse, so linear maps of it multiply zeros too. Held columns also take memory.
    """
    sparse = "sparse_rows" in draft.options.traits.abilities and pays_sparse(draft.statistics)
    return bool(draft.plan.hoisted) and (sparse or not fits)


RULE = DraftRule(
    name="hoist_invariant",
    phase="rewritten",
    apply=_apply,
    where=_where,
    why_not=lambda draft: [] if _sums_drawn_edges(draft) else declined(draft.train, _sums(draft)),
    in_doubt=_in_doubt,
    idle="no sum over edges is the same in every epoch",
    in_general_plan=False,
    repaid_by_epochs=True,
)
