"""The last check of a trace: on a small graph, the calls compute what the model computes, and do not mix rows.

The table in `lotan.stages.row_wise` classifies operators. This check finds the faults that the table misses, and those that
torch.fx cannot see, such as the backward of a user's own torch.autograd.Function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from lotan.errors import ModelError
from lotan.nn.edge_index import EdgeIndex, aggregate, edge_softmax
from lotan.stages.row_wise import DTYPES, overload
from lotan.tracing.pyg import Importer
from planner.spec import Argument, Call, Ref, RowCount, Spec

_TOLERANCE = {
    "rtol": 1e-3,
    "atol": 1e-4,
}  # the operators and their order are the same, so any real difference is far greater


def check_trace(
    model: torch.nn.Module, parameters: Mapping[str, Tensor], spec: Spec, importer: Importer | None = None
) -> None:
    """Compare a traced model with its trace, on a small graph with loops, doubled loops, parallel edges and a lone vertex.

    A forward that takes tensors is given plain ones, and nothing is replaced while it runs.

    Raises:
        ModelError: outputs or gradients differ, or a row's result depends on rows to which it has no path of edges.
    """
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(
        0, 6, (2, 17), generator=generator
    )  # has self-loops and parallel edges; vertex 6 has no edges
    features = torch.randn(7, spec.width, generator=generator)
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            _compare_with_model(model, parameters, spec, features, edge_index, importer)
            _compare_with_part(parameters, spec, features, edge_index)
    except RuntimeError as error:
        raise ModelError(f"{type(model).__name__} fails on a graph of {len(features)} vertices: {error}") from error


def _compare_with_model(
    model: torch.nn.Module,
    parameters: Mapping[str, Tensor],
    spec: Spec,
    features: Tensor,
    edge_index: Tensor,
    importer: Importer | None,
) -> None:
    mine, theirs = _copies(parameters), _copies(parameters)
    weight = importer.example_weights(edge_index.shape[1]) if importer else None
    graph = EdgeIndex(edge_index.clone(), weight, num_vertices=len(features))
    arguments, keywords = ((), importer.plain(features, graph)) if importer else ((features, graph), {})
    torch.manual_seed(0)  # the same calls in the same order draw the same dropout
    expected = torch.func.functional_call(model, theirs, arguments, keywords)
    torch.manual_seed(0)
    given = run_calls(spec, mine, features, edge_index, weight=weight)
    pairs = [("its output", given, expected)]
    cotangent = torch.linspace(-1, 1, expected.numel()).view_as(expected)
    for name, gradient, truth in _gradients(spec, mine, given, theirs, expected, cotangent):
        pairs.append((f"the gradient of {name!r}", gradient, truth))
    for what, value, truth in pairs:
        if value.shape != truth.shape or not torch.allclose(value, truth, **_TOLERANCE, equal_nan=True):
            raise ModelError(
                f"{type(model).__name__}: the traced model differs from the model itself in {what}; forward must do the same "
                "each time, depend on its arguments and parameters alone, and use no torch.autograd.Function or hook of its own"
            )


def _gradients(
    spec: Spec, mine: dict[str, Tensor], given: Tensor, theirs: dict[str, Tensor], expected: Tensor, cotangent: Tensor
) -> list[tuple[str, Tensor, Tensor]]:
    names = [parameter.name for parameter in spec.parameters if parameter.trainable]
    if not names or not given.requires_grad or not expected.requires_grad:
        return []
    first = torch.autograd.grad(given, [mine[name] for name in names], cotangent, materialize_grads=True)
    second = torch.autograd.grad(expected, [theirs[name] for name in names], cotangent, materialize_grads=True)
    return list(zip(names, first, second, strict=True))


def _compare_with_part(parameters: Mapping[str, Tensor], spec: Spec, features: Tensor, edge_index: Tensor) -> None:
    """Check that a graph's rows have the same results alone and together with another graph without edges between them."""
    other = features.flip(0, 1)[:5] * 1.5 + 0.25
    shifted = torch.cat([torch.tensor([[0, 1, 2], [1, 2, 2]]), edge_index + len(other)], dim=1)
    with torch.no_grad():
        alone = run_calls(spec, parameters, features, edge_index, drop=False)
        behind = run_calls(spec, parameters, torch.cat([other, features]), shifted, drop=False)[len(other) :]
    if not torch.allclose(alone, behind, **_TOLERANCE, equal_nan=True):
        raise ModelError(
            "the model mixes rows: what it returns for a vertex depends on vertices it has no path of edges to; "
            "vertices meet only along edges, in a lotan.nn.MessagePassing layer"
        )


def run_calls(
    spec: Spec,
    parameters: Mapping[str, Tensor],
    features: Tensor,
    edge_index: Tensor,
    drop: bool = True,
    weight: Tensor | None = None,
) -> Tensor:
    """Run a Spec on a graph.

    Args:
        spec: the traced model.
        parameters: parameters and buffers by name.
        features: vertex rows [num_vertices, width].
        edge_index: int64 [2, num_edges], sources above destinations.
        drop: if False, dropout does nothing (default: True).
        weight: weights [num_edges], or None if every edge weighs 1 (default: None).

    Returns:
        The output rows [num_vertices, outputs].
    """
    graph = EdgeIndex(edge_index, weight, num_vertices=len(features), dtype=features.dtype)
    values: dict[str, Any] = dict(parameters)
    for call in spec.calls:
        rows = len(features) if call.type.edges is None else graph.edges(call.type.edges).index.shape[1]
        arguments = [_value(argument, values, rows) for argument in call.arguments]
        keywords = {name: _value(argument, values, rows) for name, argument in call.keywords}
        if call.op.startswith("lotan."):
            values[call.output] = _graph_operator(call, arguments, graph, features)
        elif call.op == "aten.dropout.default" and not drop:
            values[call.output] = arguments[0]
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


def _graph_operator(call: Call, arguments: list[Any], graph: EdgeIndex, features: Tensor) -> Tensor:
    match call.op:
        case "lotan.vertex_input":
            return features if arguments[0] == "features" else graph.column(arguments[0])
        case "lotan.scatter":
            x, end, name = arguments
            return cast(Tensor, torch.ops.lotan.scatter(x, graph.edges(name).index, end, name))
        case "lotan.aggregate":
            messages, kind, name = arguments
            return aggregate(messages, graph.edges(name), kind)
        case "lotan.edge_softmax":
            scores, name = arguments
            return edge_softmax(scores, graph.edges(name))
    return graph.edges(arguments[0]).weight


def _copies(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone().requires_grad_(value.requires_grad) for name, value in parameters.items()}
