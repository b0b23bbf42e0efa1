"""A traced model, run on a graph by torch alone: the calls one after the other, on whole columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from lotan.nn.edge_index import EdgeIndex, Edges, aggregate, edge_softmax
from lotan.stages.neighbours import neighbour_attention, neighbour_rows, neighbour_sequence
from lotan.stages.quantile import quantile
from lotan.stages.recurrent import recurrent
from lotan.stages.row_wise import DTYPES, overload
from planner.edge_columns import fill_of
from planner.neighbours import ATTENTION, NEIGHBOUR_OPERATORS, ROWS
from planner.spec import (
    DISTRIBUTIONS,
    DROPOUT,
    GROUP_TOTAL,
    Argument,
    Call,
    Ref,
    RowCount,
    Spec,
    operator_name,
    quantile_of,
)


def run_calls(
    spec: Spec,
    parameters: Mapping[str, Tensor],
    features: Tensor,
    graph: EdgeIndex,
    drop: bool = True,
    totals: dict[str, Tensor] | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Run a Spec on a graph.

    Args:
        spec: the traced model.
        parameters: parameters and buffers by name.
        features: vertex rows [num_vertices, width].
        graph: the graph.
        drop: if False, dropout does nothing, and other random numbers are all the same (default: True).
        totals: the reductions over all vertices that are known, by the name of their call, one row each. The others are
            added to it.
        mask: a number for each edge of the graph, by which its messages are multiplied; None for 1 (default: None).

    Returns:
        The output rows [num_vertices, outputs].
    """
    values: dict[str, Any] = dict(parameters)
    for call in spec.calls:
        rows = len(features) if call.type.edges is None else graph.edges(call.type.edges).index.shape[1]
        arguments = [_value(argument, values, rows) for argument in call.arguments]
        keywords = {name: _value(argument, values, rows) for name, argument in call.keywords}
        if call.op.startswith("lotan."):
            values[call.output] = _graph_operator(call, arguments, graph, features, totals, mask)
        elif call.op == DROPOUT and not drop:
            values[call.output] = arguments[0]
        elif call.op in DISTRIBUTIONS and not drop:
            values[call.output] = torch.full_like(arguments[0], 0.5)
        else:
            values[call.output] = overload(call.op)(*arguments, **keywords)
    return cast(Tensor, values[spec.output])


def _value(argument: Argument, values: Mapping[str, Any], rows: int) -> Any:
    match argument:
        case Ref(name):
            return values[name]
        case RowCount():
            return rows
        case tuple():
            return [_value(item, values, rows) for item in argument]
        case str() if argument.startswith("torch."):
            return DTYPES[argument]
    return argument


def _total(call: Call, arguments: list[Any], totals: dict[str, Tensor] | None) -> Tensor:
    if totals is not None and call.output in totals:
        return totals[call.output].expand(len(arguments[0]), *call.type.shape)
    found = cast(Tensor, getattr(torch.ops.lotan, operator_name(call.op))(*arguments))
    if call.op == GROUP_TOTAL:
        found = found.expand(len(arguments[0]), *found.shape)
    if totals is not None:
        totals[call.output] = found[:1]
    return found


def _graph_operator(
    call: Call,
    arguments: list[Any],
    graph: EdgeIndex,
    features: Tensor,
    totals: dict[str, Tensor] | None,
    mask: Tensor | None,
) -> Tensor:
    match call.op:
        case "lotan.total" | "lotan.total_products" | "lotan.greatest" | "lotan.group_total":
            return _total(call, arguments, totals)
        case "lotan.group_rows":
            table, group = arguments
            alike = table.dim() > len(call.type.shape) + 1  # rows of tables that are all the same
            return cast(Tensor, torch.ops.lotan.group_rows(table[0] if alike else table, group))
        case "lotan.times_total":
            return cast(Tensor, torch.ops.lotan.times_total(*arguments))
        case "lotan.recurrent":
            return recurrent(*arguments)
        case "lotan.shown":
            return torch.ones_like(arguments[0])
        case "lotan.learned_rows" if len(arguments) > 1:  # of the vertices of a type, whose number is the last feature
            rows, number = arguments
            here = (features[:, -1] == number).nonzero().view(-1)
            return cast(Tensor, rows.new_zeros(len(features), *rows.shape[1:]).index_put((here,), rows))
        case "lotan.track" | "lotan.learned_rows":
            return cast(Tensor, arguments[0])
        case "lotan.vertex_input":
            return features if arguments[0] == "features" else graph.column(arguments[0])
        case "lotan.scatter":
            x, end, name = arguments
            return cast(Tensor, torch.ops.lotan.scatter(x, graph.edges(name).index, end, name))
        case "lotan.aggregate":
            messages, kind, name = arguments
            if mask is not None:
                messages = messages * graph.spread(mask, name).view(-1, *[1] * (messages.dim() - 1))
            if quantile_of(kind) is not None:
                edges = graph.edges(name)
                return quantile(messages, edges.index, edges.num_vertices, kind)
            return aggregate(messages, graph.edges(name), kind)
        case op if op in NEIGHBOUR_OPERATORS:
            return _on_neighbours(op, arguments, graph.edges(arguments[-1]), mask)
        case "lotan.edge_softmax":
            scores, name = arguments
            return edge_softmax(scores, graph.edges(name))
        case "lotan.edge_column":
            column, name = arguments
            base, fill = fill_of(column)
            return graph.edge_column(base, name, 1.0 if fill is None else fill)
    return graph.edges(arguments[0]).weight


def _on_neighbours(op: str, arguments: list[Any], edges: Edges, mask: Tensor | None) -> Tensor:
    """Run an operator on the neighbours of each vertex, on edges in any order."""
    destinations, order = edges.index[1].sort(stable=True)
    counts = torch.bincount(destinations, minlength=edges.num_vertices)
    if op == ATTENTION:
        queries, keys, values, _ = arguments
        out = neighbour_attention(queries[order], keys[order], values[order], counts)
        return torch.zeros_like(out).index_copy(0, order, out)
    messages, by, *settings, _ = arguments
    if mask is not None:
        messages = messages * mask.view(-1, *[1] * (messages.dim() - 1))
    given = messages[order], by[order], destinations, counts
    if op == ROWS:
        return neighbour_rows(*given, *settings)
    steps, *others = settings
    return neighbour_sequence(*given, round(steps.reshape(-1)[0].item()), *others)
