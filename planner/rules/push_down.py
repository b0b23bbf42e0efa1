"""Rule: sums of unparameterised messages belong to the Graph Engine."""

from __future__ import annotations

from planner.nodes import (
    Aggregate,
    Dropout,
    EdgeSoftmax,
    Elementwise,
    Node,
    Parameter,
    Propagate,
    RowWise,
    Scatter,
    StaticColumn,
    topological,
)
from planner.patterns import weighted
from planner.spec import ValueType


def push_down(node: Node) -> Node | None:
    """The sum over in-edges of [w_e *] x[source] is Propagate(x): nothing is collected; mean = sum / in-degree.

    Section 4.2 of the Lotan report: when message and aggregate have no parameters, one aggregated vector per vertex is
    piped in place of its neighbourhood.

    >>> x = StaticColumn("features", ValueType("vertex", (4,)))
    >>> push_down(Aggregate(Scatter(x, "source", "graph"), "sum", "graph")) is Propagate(x, "graph")
    True
    """
    if not isinstance(node, Aggregate) or node.kind not in ("sum", "mean"):
        return None
    if node.kind == "mean" and node.edges != "graph":
        return None
    copied = _copied_source(node.message)
    if copied is None:
        return None
    total = Propagate(copied[0], node.edges, copied[1], node.layer)
    return total if node.kind == "sum" else _divided_by_degree(total, node.layer)


def _copied_source(message: Node) -> tuple[Node, bool] | None:
    """(x, weighted) where the message is x of the source, or that times the edge's weight."""
    product = weighted(message)
    copy = message if product is None else product[0]
    return (copy.x, product is not None) if isinstance(copy, Scatter) and copy.end == "source" else None


def _divided_by_degree(total: Propagate, layer: str) -> Node:
    degree: Node = StaticColumn("in_degree", ValueType("vertex", ()))
    for depth in range(len(total.output.shape)):
        degree = RowWise("aten.unsqueeze.default", (degree, -1), (), ValueType("vertex", (1,) * (depth + 1)), layer)
    return Elementwise("aten.div.Tensor", (total, degree), (), total.output, layer)


def declined(node: Node) -> str | None:
    """Why an aggregate stayed in the DL Engine, and what to write instead."""
    if not isinstance(node, Aggregate):
        return None
    where = f"layer {node.layer or '?'}"
    if node.kind in ("max", "min"):
        return f"the {node.kind} of {where} has no linear adjoint; its neighbourhoods are collected"
    if node.kind == "mean" and node.edges != "graph":
        return f"the mean of {where} runs over added self-loops; write it as a sum over a scaled x"
    return f"the message of {where} {_reason(node.message)}; its neighbourhoods are collected"


def _reason(message: Node) -> str:
    on_edges = [node for node in topological(message) if node.output.rows == "edge"]
    parameters = [child.name for node in on_edges for child in node.children if isinstance(child, Parameter)]
    if parameters:
        return f"uses parameter {parameters[0]} on edges"
    if any(isinstance(node, Dropout) for node in on_edges):
        return "draws random numbers for every edge"
    if any(isinstance(node, EdgeSoftmax) for node in on_edges):
        return "is a softmax over the in-edges"
    if any(isinstance(node, Scatter) and node.end == "destination" for node in on_edges):
        return "reads the destination"
    return "is more than the source's row times the edge's weight"
