"""The last check of a trace: on a small graph, the calls compute what the model computes, and do not mix rows.

The table in `lotan.stages.row_wise` classifies operators. This check finds the faults that the table misses, and those that
torch.fx cannot see, such as the backward of a user's own torch.autograd.Function.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lotan.errors import ModelError
from lotan.tracing.foreign_draws import no_foreign_draws
from lotan.tracing.learned import VertexNumbers, counts_of_rows, rows_for
from lotan.tracing.outputs import joined
from lotan.tracing.pyg.importing import Importer
from lotan.tracing.pyg.layers import samples_for_own_loss
from lotan.tracing.running import run_calls
from lotan.tracing.samples import SAMPLE_EDGES, SAMPLE_VERTICES, Sample, sample_by_type, sample_graph
from planner.edge_columns import EDGE_COLUMN, LOOP, NO_EDGE_DATA, EdgeData, number_of_types
from planner.neighbours import NEIGHBOUR_OPERATORS
from planner.spec import Spec

FEW = 2
"""The most vertices or edges of a graph for which a model's code is likely to branch."""
OF_OUTPUT = "its output"
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_TOLERANCE = {
    "rtol": 1e-3,
    "atol": 1e-4,
}  # the operators and their order are the same, so any real difference is far greater


def check_on_few(
    model: torch.nn.Module,
    parameters: Mapping[str, Tensor],
    spec: Spec,
    few: tuple[int, int],
    data: EdgeData = NO_EDGE_DATA,
    importer: Importer | None = None,
    draws: bool = True,
) -> None:
    """Compare a traced model with its trace on a graph of few vertices or edges, for which its code may branch.

    torch treats sizes of 0 and 1 apart from all others, so a trace tells nothing about them.

    Args:
        model: the model.
        parameters: its parameters and buffers, by name.
        spec: the trace.
        few: the numbers of vertices and of edges.
        data: the attributes and types of edges.
        importer: what calls a forward that takes tensors, or None.
        draws: False if the trace draws random numbers in another order than the model.

    Raises:
        ModelError: outputs differ.
    """
    with _checking(model, spec, data, importer, draws, *few) as sample, suppress(ValueError):
        # torch takes no variance of one row, which is a ValueError; `check_statistics` of the job says so by the layer
        _compare_with_model(model, parameters, spec, sample, importer, gradients=False)


def check_trace(
    model: torch.nn.Module,
    parameters: Mapping[str, Tensor],
    spec: Spec,
    data: EdgeData = NO_EDGE_DATA,
    importer: Importer | None = None,
    draws: bool = True,
) -> None:
    """Compare a traced model with its trace, on a small graph with loops, doubled loops, parallel edges and a lone vertex.

    A forward that takes tensors is given plain ones, and nothing is replaced while it runs.

    Raises:
        ModelError: outputs or gradients differ, or a row's result depends on rows to which it has no path of edges.
    """
    with _checking(model, spec, data, importer, draws) as sample:
        fills = any(str(call.arguments[0]).startswith(LOOP) for call in spec.calls if call.op == EDGE_COLUMN)
        _compare_with_model(model, parameters, spec, sample, importer, gradients=not fills)
        if fills:
            # of values of several self-loops of a vertex, PyG keeps the last, but gives all of them its gradient
            _compare_with_model(model, parameters, spec, sample.with_single_loops(), importer)
        _compare_with_part(parameters, spec, sample)


@contextmanager
def _checking(
    model: torch.nn.Module,
    spec: Spec,
    data: EdgeData,
    importer: Importer | None,
    draws: bool,
    vertices: int = SAMPLE_VERTICES,
    edges: int = SAMPLE_EDGES,
) -> Iterator[Sample]:
    """Yield the graph of a check. Inside, gradients are recorded, and errors of the model become ModelErrors."""
    limit = number_of_types(spec)
    if spec.vertex_types is not None:
        sample = sample_by_type(spec.vertex_types, importer is not None and importer.weighted)
        vertices = len(sample.features)
    else:
        types = limit[0] if limit is not None else 2
        sample = sample_graph(spec.width, data, types, vertices, edges).bounded(spec.bounds)
        if spec.groups is not None:  # sorted, with the first and the last group
            sample.features[:, -1] = torch.linspace(0, spec.groups - 1, vertices).floor()
        if spec.sees_labels:
            sample.features[:, -1] = torch.arange(vertices) % 3 - 1.0
        if importer is not None:
            sample = replace(sample, weight=importer.example_weights(edges))
        sample = replace(sample, draws=draws)
        if any(call.op in NEIGHBOUR_OPERATORS for call in spec.calls):
            sample = sample.by_destination(None if importer is None else importer.order)
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            yield sample
    except AssertionError as error:
        if "FakeTensor" not in str(error):
            raise
        raise ModelError(
            f"{type(model).__name__}: forward keeps a tensor of one call and reads it in the next; it runs once, "
            "while it is traced, so compute the tensor in each call, or before training, as a buffer"
        ) from error
    except (RuntimeError, IndexError) as error:
        size = f"{vertices} vertices" + ("" if edges == SAMPLE_EDGES else f" and {edges} edges")
        raise ModelError(f"{type(model).__name__} fails on a graph of {size}: {error}") from error


def _compare_with_model(
    model: torch.nn.Module,
    parameters: Mapping[str, Tensor],
    spec: Spec,
    sample: Sample,
    importer: Importer | None,
    gradients: bool = True,
) -> None:
    different = _differences(model, parameters, spec, sample, importer, gradients)
    if different and gradients and _is_rounding(different, model, parameters, spec, sample, importer):
        return
    if different:
        raise ModelError(
            f"{type(model).__name__}: the traced model differs from the model itself in {different[0]}; forward must do the same "
            "each time, depend on its arguments and parameters alone, and use no torch.autograd.Function or hook of its own"
        )


def _differences(
    model: torch.nn.Module,
    parameters: Mapping[str, Tensor],
    spec: Spec,
    sample: Sample,
    importer: Importer | None,
    gradients: bool,
) -> list[str]:
    """Return in what a model and its trace differ, in words."""
    counts = counts_of_rows(spec, parameters, sample.features)
    parameters = rows_for(parameters, spec, sample.features)
    mine, theirs = _copies(parameters), _copies(parameters)
    graph = replace(sample, index=sample.index.clone()).graph()
    features = sample.features
    shown = features if spec.groups is None and not spec.sees_labels else features[:, :-1]
    arguments, keywords = ((), importer.plain(features, graph)) if importer else ((shown, graph), {})
    torch.manual_seed(0)  # the same calls in the same order draw the same dropout
    alike = sample.draws

    def run() -> Any:
        with nullcontext() if alike else _WithoutDraws(), VertexNumbers(counts):
            return torch.func.functional_call(model, theirs, arguments, keywords)

    samples = filter(samples_for_own_loss, model.modules())
    with _unchanging(model, theirs), no_foreign_draws(f"{type(model).__name__}: forward", run, samples):
        expected = run()
    if spec.further:
        expected, _ = joined(expected, [name for name, _ in spec.further], ModelError)
    expected = expected if importer is None else importer.output(expected, ModelError)
    torch.manual_seed(0)
    given = run_calls(spec, mine, sample.features, sample.graph(), drop=alike)
    rows = None if importer is None else importer.rows(features)
    given = given if rows is None else given[rows]
    pairs = [(OF_OUTPUT, given, expected)]
    cotangent = torch.linspace(-1, 1, expected.numel(), dtype=expected.dtype).view_as(expected)
    compared = _gradients(spec, mine, given, theirs, expected, cotangent) if gradients else []
    pairs += [(f"the gradient of {name!r}", gradient, truth) for name, gradient, truth in compared]
    return [
        what
        for what, value, truth in pairs
        if value.shape != truth.shape or not torch.allclose(value, truth, **_TOLERANCE, equal_nan=True)
    ]


def _is_rounding(
    different: Sequence[str],
    model: torch.nn.Module,
    parameters: Mapping[str, Tensor],
    spec: Spec,
    sample: Sample,
    importer: Importer | None,
) -> bool:
    """Return True if gradients alone differ, and only by rounding: in float64 they are equal.

    Such a gradient is a sum that cancels, like that of a bias before a normalisation, whose true value is 0.
    """
    if OF_OUTPUT in different:
        return False
    wide = {name: value.double() if value.is_floating_point() else value for name, value in parameters.items()}
    wide = {name: value.detach().requires_grad_(parameters[name].requires_grad) for name, value in wide.items()}
    try:
        return not _differences(model, wide, spec, sample.double(), importer, gradients=True)
    except (RuntimeError, TypeError):  # the model itself makes float32, which does not mix with float64
        return False


class _WithoutDraws(TorchFunctionMode):
    """Lets dropout do nothing, and makes all other random numbers alike, as `run_calls` does it with `drop=False`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("dropout", "dropout_"):
            return args[0]
        if name in _RECURRENT:  # between the layers of torch's own; the sixth argument is the probability
            args = (*args[:5], 0.0, *args[6:])
        if name in ("rand_like", "randn_like", "bernoulli"):
            return torch.full_like(args[0], 0.5)
        found = func(*args, **(kwargs or {}))
        return torch.full_like(found, 0.5) if name in ("rand", "randn") else found


@contextmanager
def _unchanging(model: torch.nn.Module, given: Mapping[str, Tensor]) -> Iterator[None]:
    """Refuse a forward that keeps something for the next call: it runs once, while it is traced.

    It may assign to no buffer, and change no number, no container and no generator of its modules.

    Args:
        model: the model, which runs inside.
        given: the parameters and buffers that it runs with, by name.
    """
    before = {name: _kept(module) for name, module in model.named_modules()}
    found: list[str] = []

    def look(module: torch.nn.Module, arguments: Any, output: Any) -> None:
        found.extend(name for name, value in module.named_buffers() if name in given and value is not given[name])
        for name, part in module.named_modules():
            now = _kept(part)
            found.extend(
                f"{name}.{key}".lstrip(".") for key, value in before[name].items() if now.get(key, value) != value
            )

    hook = model.register_forward_hook(look)
    try:
        yield
    finally:
        hook.remove()
    if found:
        raise ModelError(
            f"{type(model).__name__}: forward assigns to {', '.join(found)}, which would differ from epoch to epoch; forward "
            "runs once, while it is traced, so nothing that it keeps for the next time is kept"
        )


def _kept(module: torch.nn.Module) -> dict[str, Any]:
    """Return what a module may keep between two calls, by attribute: numbers, sizes of containers, states of generators."""
    kept: dict[str, Any] = {}
    for name, value in vars(module).items():
        if isinstance(value, int | float):
            kept[name] = value
        elif isinstance(value, random.Random):
            kept[name] = value.getstate()
        elif isinstance(value, np.random.Generator):
            kept[name] = str(value.bit_generator.state)
        elif isinstance(value, list | dict | set | deque) and not name.startswith("_"):
            values = value.values() if isinstance(value, dict) else value
            kept[name] = len(value), [one for one in values if isinstance(one, int | float)]
    return kept


def _gradients(
    spec: Spec, mine: dict[str, Tensor], given: Tensor, theirs: dict[str, Tensor], expected: Tensor, cotangent: Tensor
) -> list[tuple[str, Tensor, Tensor]]:
    buffers = {name for layer in spec.tracked for name in (layer.mean, layer.variance)}
    names = [p.name for p in spec.parameters if p.trainable and p.name not in buffers]
    if names and not expected.requires_grad:
        raise ModelError(
            f"forward returns a tensor without a gradient, so {', '.join(names[:3])} would never change; leave out .detach() on "
            "the way to the output, or freeze these parameters by requires_grad_(False)"
        )
    if not names or not given.requires_grad:
        return []
    first = torch.autograd.grad(given, [mine[name] for name in names], cotangent, materialize_grads=True)
    second = torch.autograd.grad(expected, [theirs[name] for name in names], cotangent, materialize_grads=True)
    return [
        (name, mine, other.to_dense() if other.is_sparse else other)  # as that of an embedding made with sparse=True
        for name, mine, other in zip(names, first, second, strict=True)
    ]


def _compare_with_part(parameters: Mapping[str, Tensor], spec: Spec, sample: Sample) -> None:
    """Check that a graph's rows have the same results alone and together with another graph without edges between them.

    Reductions over all vertices are known to mix rows. They are taken over the first graph both times.
    """
    if spec.vertex_types is None:
        other = sample.features.flip(0, 1)[:5] * 1.5 + 0.25
        if spec.groups is not None or spec.sees_labels:
            other[:, -1] = sample.features[: len(other), -1]
        both = sample.behind(other, torch.tensor([[0, 1, 2], [1, 2, 2]]))
    else:
        other = sample.features * 1.5 + 0.25
        other[:, -1] = sample.features[:, -1]  # the types
        both = sample.behind(other, sample.index)
    own, of_both = (rows_for(parameters, spec, sample.features, before) for before in (None, other))
    with torch.no_grad():
        totals: dict[str, Tensor] = {}
        alone = run_calls(spec, own, sample.features, sample.graph(), drop=False, totals=totals)
        together = run_calls(spec, of_both, both.features, both.graph(), drop=False, totals=totals)
        behind = together[len(other) :]
    if not torch.allclose(alone, behind, **_TOLERANCE, equal_nan=True):
        raise ModelError(
            "the model mixes rows: what it returns for a vertex depends on vertices it has no path of edges to; "
            "vertices meet only along edges, in a lotan.nn.MessagePassing layer"
        )


def _copies(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone().requires_grad_(value.requires_grad) for name, value in parameters.items()}
