"""Sum over the edges of one type alone, where a mask leaves out all others."""

from __future__ import annotations

from planner.draft import Draft
from planner.edge_columns import EdgeColumnName
from planner.edge_sets import edge_set, has_added_loops, is_reversed, relation_of
from planner.edge_values import unshaped
from planner.nodes import Aggregate, Apply, EdgeColumn, EdgeWeight, Node, Scatter, replaced, tensor_arguments
from planner.products import factors_of, product, with_ones
from planner.rule import NodeRule
from planner.spec import ValueType

TYPE: EdgeColumnName = "edge_type"
CASTS = ("aten.to.dtype", "aten._to_copy.default")


def split_relations(node: Node) -> Node | None:
    """The sum of [type_e = r] * m_e over all in-edges is the sum of m_e over those of type r.

    Models with relations sum once for each. Over the edges of its own type, a sum walks over no edge of another, so
    that all sums together walk over each edge once. A message that was masked becomes a plain one, which other rules
    push down.

    >>> from planner.nodes import Elementwise, RowWise, StaticColumn
    >>> from planner.printer import tree
    >>> copy = Scatter(StaticColumn("features", ValueType("vertex", (4,))), "source", "graph")
    >>> bits, ones = (ValueType("edge", (), dtype, "graph") for dtype in ("bool", "float32"))
    >>> mask = RowWise("aten.eq.Scalar", (EdgeColumn("edge_type", "graph", (), "int64"), 2), (), bits)
    >>> mask = RowWise("aten.to.dtype", (mask, "float32"), (), ones)
    >>> mask = RowWise("aten.unsqueeze.default", (mask, -1), (), ValueType("edge", (1,), "float32", "graph"))
    >>> message = Elementwise("aten.mul.Tensor", (copy, mask), (), copy.output)
    >>> for line in tree(split_relations(Aggregate(message, "sum", "graph"))): print(line)
    Aggregate(kind=sum, edges=graph:2)                                dl    [V, 4]
    Scatter(end=source, edges=graph:2, features)                      dl    [E, 4]
    """
    if not isinstance(node, Aggregate) or node.kind != "sum":
        return None
    if relation_of(node.edges) is not None or has_added_loops(node.edges):
        return None
    relations, others = set(), []
    for factor in factors_of(node.message):
        relation = _masked(factor.node)
        if relation is None:
            others.append(with_ones(factor, node.layer))
        else:
            relations.add(relation)
    if len(relations) != 1 or not others:
        return None
    edges = edge_set("reversed" if is_reversed(node.edges) else "graph", relations.pop())
    kept = _on(edges, product(others, node.layer), {})
    if kept is None or kept.output.shape != node.message.output.shape:
        return None
    return Aggregate(kept, node.kind, edges, node.layer)


def _masked(node: Node) -> int | None:
    """Return the type of edges for which a factor is 1, if it is 0 for all others; else None."""
    cast = unshaped(node)
    if not isinstance(cast, Apply) or cast.op not in CASTS:
        return None
    (compared, *_) = tensor_arguments(cast)
    if not isinstance(compared, Apply) or compared.op != "aten.eq.Scalar":
        return None
    column, number = compared.arguments
    is_type = isinstance(column, EdgeColumn) and column.name == TYPE
    return number if is_type and isinstance(number, int) and number >= 0 else None


def _on(edges: str, node: Node, made: dict[Node, Node | None]) -> Node | None:
    """Return a value on edges for another edge set; None if it is not made of each edge's own numbers alone."""
    if node.output.rows != "edge":
        return node
    if node not in made:
        made[node] = _made_on(edges, node, made)
    return made[node]


def _made_on(edges: str, node: Node, made: dict[Node, Node | None]) -> Node | None:
    match node:
        case Scatter():
            return Scatter(node.x, node.end, edges, node.layer)
        case EdgeWeight():
            return EdgeWeight(edges, node.unit)
        case EdgeColumn():
            return EdgeColumn(node.name, edges, node.shape, node.dtype)
        case Apply():
            inside: dict[Node, Node] = {}
            for child in node.children:
                found = _on(edges, child, made)
                if found is None:
                    return None
                inside[child] = found
            kind = ValueType("edge", node.output.shape, node.output.dtype, edges)
            op, arguments, keywords, _, layer = replaced(node.values, inside)
            return type(node)(op, arguments, keywords, kind, layer)
    return None


def _in_doubt(draft: Draft, _: bool) -> bool:
    """Return True if the rule fired: many relations of few edges each may cost more than they spare."""
    return any(firing.rule == RULE.name for firing in draft.firings)


RULE = NodeRule(
    name="split_relations",
    apply=split_relations,
    in_doubt=_in_doubt,
    on=(Aggregate,),
    idle="no sum along edges has a mask that keeps the edges of one type",
    in_general_plan=False,
)
