"""The truth that planner and engines are compared with: a Spec run call by call in one process, differentiated by autograd.

Written apart from the package on purpose: plain torch, no graph operator of lotan's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from planner.spec import Argument, Call, Ref, RowCount, Spec


def run_spec(
    spec: Spec,
    parameters: Mapping[str, Tensor],
    features: Tensor,
    edge_index: Tensor,
    weight: Tensor | None = None,
    drop: bool = False,
    columns: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """The model's output.

    Args:
        spec: the traced model.
        parameters: all its parameters and buffers by name; differentiable where they require gradients.
        features: [num_vertices, width].
        edge_index: int64 [2, num_edges], sources above destinations.
        weight: [num_edges], or None for 1.
        drop: whether dropout drops (by torch's generator), or is left out.
        columns: attributes "edge_attr" [num_edges, width] and types "edge_type" [num_edges], if a call reads them.

    Returns:
        [num_vertices, outputs]
    """
    edges = {"graph": _weighted(edge_index, weight, features.dtype)}
    edges["self_loops"] = _with_self_loops(*edges["graph"], len(features))
    for name, turned in (("graph", "reversed"), ("self_loops", "reversed_self_loops")):
        index, own = edges[name]
        edges[turned] = index.flip(0), own
    values: dict[str, Any] = dict(parameters)
    for call in spec.calls:
        rows = len(features) if call.type.edges is None else edges[call.type.edges][0].shape[1]
        arguments = [_value(argument, values, rows) for argument in call.arguments]
        keywords = {name: _value(argument, values, rows) for name, argument in call.keywords}
        if call.op == "lotan.edge_column":
            values[call.output] = _edge_column(*call.arguments, edge_index, columns or {}, len(features))
        else:
            values[call.output] = _run(call, arguments, keywords, features, edges, drop)
        _check_type(call, values[call.output], rows)
    return values[spec.output]


def _run(call: Call, arguments: list, keywords: dict, features: Tensor, edges: dict, drop: bool) -> Tensor:
    match call.op:
        case "lotan.vertex_input":
            return _column(arguments[0], features, edges)
        case "lotan.edge_weight":
            return edges[arguments[0]][1]
        case "lotan.scatter":
            x, end, name = arguments
            return x[edges[name][0][0 if end == "source" else 1]]
        case "lotan.aggregate":
            messages, kind, name = arguments
            return _aggregate(messages, edges[name][0][1], len(features), kind)
        case "lotan.edge_softmax":
            scores, name = arguments
            return _softmax(scores, edges[name][0][1])
        case "aten.dropout.default" if not drop:
            return arguments[0]
    _, packet, overload = call.op.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)(*arguments, **keywords)


def _edge_column(name: str, edges: str, edge_index: Tensor, columns: Mapping[str, Tensor], num_vertices: int) -> Tensor:
    """A column of edges, loop by loop: those of "self_loops" are one for each vertex, behind the other edges."""
    base, _, fill = name.partition("[")
    src, dst = edge_index
    column = columns[base] if base != "edge_loop" else (src == dst).float().view(-1, 1)
    if not edges.endswith("self_loops"):
        return column
    found = []
    for vertex in range(num_vertices):
        own = column[(src == vertex) & (dst == vertex)]
        found.append(own[-1] if len(own) else _filled(column, column[dst == vertex], fill.removesuffix("]")))
    return torch.cat([column[src != dst], torch.stack(found)])


def _filled(column: Tensor, into: Tensor, fill: str) -> Tensor:
    if fill not in ("mean", "add", "max", "min"):
        return torch.full(column.shape[1:], float(fill)).to(column.dtype)
    if not len(into):
        return torch.zeros(column.shape[1:])
    return {"mean": into.mean(0), "add": into.sum(0), "max": into.amax(0), "min": into.amin(0)}[fill]


def _value(argument: Argument, values: Mapping[str, Any], rows: int) -> Any:
    if isinstance(argument, Ref):
        return values[argument.name]
    if isinstance(argument, RowCount):
        return rows
    if isinstance(argument, tuple):
        return [_value(item, values, rows) for item in argument]
    if isinstance(argument, str) and argument.startswith("torch."):
        return getattr(torch, argument.removeprefix("torch."))
    return argument


def _check_type(call: Call, value: Tensor, rows: int) -> None:
    """Every value is what its call says it is."""
    shape = call.type.shape if call.type.rows == "none" else (rows, *call.type.shape)
    assert tuple(value.shape) == shape, (call, tuple(value.shape))
    if call.type.dtype != "float32" or value.dtype != torch.float64:  # a run in double precision is fine
        assert str(value.dtype) == f"torch.{call.type.dtype}", (call, value.dtype)


def _column(name: str, features: Tensor, edges: dict) -> Tensor:
    if name == "features":
        return features
    index, weight = edges["self_loops" if name.endswith("self_loops") else "graph"]
    rows = [weight[index[1] == vertex] for vertex in range(len(features))]
    if name == "in_degree":
        return features.new_tensor([max(len(row), 1) for row in rows])
    degree = torch.stack([row.sum() for row in rows])
    scale = degree**-0.5
    return torch.where(torch.isfinite(scale), scale, torch.zeros_like(scale))


def _aggregate(messages: Tensor, destination: Tensor, num_vertices: int, kind: str) -> Tensor:
    """Vertex by vertex; amax and amin share a gradient evenly among ties."""
    reduce = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}[kind]
    nothing = messages.new_zeros(messages.shape[1:])
    incoming = [messages[destination == vertex] for vertex in range(num_vertices)]
    return torch.stack([reduce(rows, dim=0) if len(rows) else nothing for rows in incoming])


def _softmax(scores: Tensor, destination: Tensor) -> Tensor:
    result = torch.zeros_like(scores)
    for vertex in destination.unique():
        result = torch.where(
            (destination == vertex).view(-1, *[1] * (scores.dim() - 1)),
            _spread(torch.softmax(scores[destination == vertex], dim=0), destination == vertex, scores),
            result,
        )
    return result


def _spread(rows: Tensor, where: Tensor, like: Tensor) -> Tensor:
    """`rows` put where `where` is true."""
    position = (where.cumsum(0) - 1).clamp(min=0)
    return rows[position]


def _weighted(edge_index: Tensor, weight: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return edge_index, torch.ones(edge_index.shape[1], dtype=dtype) if weight is None else weight


def _with_self_loops(edge_index: Tensor, weight: Tensor, num_vertices: int) -> tuple[Tensor, Tensor]:
    """Every self-loop replaced by exactly one per vertex, of its weight (the last one's), else 1."""
    loop_weight = {v: torch.ones((), dtype=weight.dtype) for v in range(num_vertices)}
    kept = []
    for position, (source, destination) in enumerate(edge_index.t().tolist()):
        if source == destination:
            loop_weight[source] = weight[position]
        else:
            kept.append(position)
    loops = torch.arange(num_vertices)
    index = torch.cat([edge_index[:, kept], torch.stack([loops, loops])], dim=1)
    return index, torch.cat([weight[kept], torch.stack(list(loop_weight.values()))])
