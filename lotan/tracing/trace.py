"""The trace of a model, from its module to its `Spec`, and the traces that are kept for later models of the same form."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import NamedTuple, Unpack

import torch
from torch import Tensor

from lotan.errors import ModelError
from lotan.nn.unwrapping import uncompiled
from lotan.tracing.check import FEW, check_on_few, check_trace
from lotan.tracing.form import form_of
from lotan.tracing.graph_columns import GivenColumns, GraphColumns
from lotan.tracing.learned import learned_rows
from lotan.tracing.pyg.by_type import ImporterByType
from lotan.tracing.pyg.importing import Importer, without_caches
from lotan.tracing.recording import record
from lotan.tracing.samples import SAMPLE_EDGES, SAMPLE_VERTICES
from lotan.tracing.signature import Wanted, wanted
from lotan.tracing.training_mode import in_mode, watched_flags
from lotan.tracing.transcript import Transcript
from planner.spec import ParameterSpec, Spec

MOST_TRACED = 128
"""The number of traces that are kept for later models of the same form. The models of a grid have few forms."""

_NORMED = (
    "layer {!r}: its weight is computed anew in each forward, by {}, which a plan cannot follow; make it a parameter again, "
    "with its present value: {}"
)
TRACING = threading.RLock()
"""Only one model is traced at a time, because torch.fx records one at a time."""


class _Traced(NamedTuple):
    spec: Spec
    by_mode: bool  # the forward asks whether the model is in training


_TRACED: dict[Hashable, _Traced] = {}


def trace_modes(
    model: torch.nn.Module, width: int, few: tuple[int, int] | None = None, **given: Unpack[GivenColumns]
) -> tuple[Spec, Spec]:
    """Return the Specs of a model in training and in evaluation. A forward that never reads `training` is traced once.

    The arguments and errors are those of `trace`.
    """
    columns = _columns(model, width, given)
    train = _trace(model, columns, True, few)
    by_mode = train.by_mode or columns.label_rate is not None
    return train.spec, (_trace(model, columns, False, few) if by_mode else train).spec


def trace(
    model: torch.nn.Module,
    width: int,
    training: bool,
    few: tuple[int, int] | None = None,
    **given: Unpack[GivenColumns],
) -> Spec:
    """Return the Spec of a model.

    Args:
        model: a module whose `forward(x, graph)` takes the features [num_vertices, width] and the graph for its layers,
            and returns [num_vertices, outputs]. A forward that takes `x` and `edge_index`, as PyG's models do, is
            traced too, and for a graph with types of vertices one that takes `x_dict` and `edge_index_dict`. The model's
            attributes are not changed.
        training: if True, the model is traced as in training, with dropout; if False, as in evaluation.
        width: the width of the vertices' features.
        few: the numbers of vertices and edges of a graph that has few of them, see `few_of`; None for other graphs.
        given: the other columns of the graph, as the fields of `lotan.tracing.graph_columns.GraphColumns` describe them. Of
            these, `vertices` has the number of vertices of each type, or none if they are not known. A torch.nn.Embedding
            of so many rows has a row for each vertex.

    Raises:
        ModelError: the model cannot be traced, mixes rows, or uses an operator that is not supported. The error names
            the layer, the line, and what to write instead.

    Example:
        >>> import lotan.nn
        >>> spec = trace(lotan.nn.GCN(8, 16, num_layers=2, out_channels=4), width=8, training=True)
        >>> sum(call.op == "lotan.aggregate" for call in spec.calls)
        2
    """
    return _trace(model, _columns(model, width, given), training, few).spec


def _columns(model: torch.nn.Module, width: int, given: GivenColumns) -> GraphColumns:
    """Return the columns on which a model is traced, or refuse a model that no trace could follow."""
    _require_plain_weights(model)
    _require_float32(model)
    _require_no_hooks(model)
    vertices = given.pop("vertices", ())
    columns = GraphColumns(width, **given)
    learned = learned_rows(model, vertices, columns.types)
    return replace(columns, learned=tuple(learned.items()), vertices=vertices) if learned else columns


def forget_traces() -> None:
    """Drop the traces that are kept for later models of the same form."""
    _TRACED.clear()


def few_of(vertices: int, edges: int) -> tuple[int, int] | None:
    """Return the sizes of a graph on which a trace has to be checked apart, or None if it has enough vertices and edges.

    Only as many are needed as other checks take.
    """
    if min(vertices, edges) > FEW:
        return None
    return min(vertices, SAMPLE_VERTICES), min(edges, SAMPLE_EDGES)


def _trace(model: torch.nn.Module, columns: GraphColumns, training: bool, few: tuple[int, int] | None) -> _Traced:
    """Trace a model, or return the trace of an earlier one of the same form."""
    form = form_of(model)
    if form is None:
        return _trace_anew(model, columns, training, few)
    key = form, columns, training, few
    if key not in _TRACED:
        while len(_TRACED) >= MOST_TRACED:
            _TRACED.pop(next(iter(_TRACED)))
        _TRACED[key] = _trace_anew(model, columns, training, few)
    return _TRACED[key]


def _trace_anew(model: torch.nn.Module, columns: GraphColumns, training: bool, few: tuple[int, int] | None) -> _Traced:
    """Trace a model. An embedding that only happens to have as many rows as there are vertices is an ordinary parameter."""
    own = tuple(learned_rows(model, (), columns.types).items())
    if columns.learned == own:
        return _trace_so(model, columns, training, few)
    vertices = columns.vertices if own else ()
    try:
        return _trace_so(model, columns, training, few)
    except ModelError as error:
        with suppress(ModelError):
            return _trace_so(model, replace(columns, learned=own, vertices=vertices), training, few)
        raise error


def _trace_so(model: torch.nn.Module, columns: GraphColumns, training: bool, few: tuple[int, int] | None) -> _Traced:
    asked = wanted(model, columns)
    importer = _importer(model, asked, columns)
    parameters = {
        **dict(model.named_parameters()),
        **dict(model.named_buffers()),
    }  # a parameter that is shared appears once
    specs = tuple(_parameter_spec(name, value) for name, value in parameters.items())
    with TRACING, uncompiled(), in_mode(model, training), nullcontext() if importer is None else without_caches(model):
        with watched_flags(model) as reads:
            recording = record(model, parameters, columns, importer)
        transcript = Transcript(columns.width, specs, recording)
        spec = transcript.spec()
        check_trace(model, parameters, spec, columns.data, importer, not transcript.draws_moved)
        if few is not None and columns.types is None:
            check_on_few(model, parameters, spec, few, columns.data, importer, not transcript.draws_moved)
    return _Traced(spec, reads.any)


def _importer(model: torch.nn.Module, asked: Wanted | None, columns: GraphColumns) -> Importer | None:
    if asked is None:
        return None
    if columns.types is None:
        return Importer(asked, columns.weighted, columns.data.flat, columns.groups, columns.label_rate, columns.order)
    return ImporterByType(asked, columns.types, columns.weighted, model)


def _parameter_spec(name: str, value: Tensor) -> ParameterSpec:
    return ParameterSpec(name, tuple(value.shape), value.requires_grad, str(value.dtype).removeprefix("torch."))


def _require_float32(model: torch.nn.Module) -> None:
    if torch.get_default_dtype() != torch.float32:
        raise ModelError(
            f"torch's default dtype is {torch.get_default_dtype()}, and plans compute in torch.float32; begin with "
            "torch.set_default_dtype(torch.float32), and make the model after it, or call model.float()"
        )
    for name, parameter in model.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise ModelError(
                f"parameter {name!r} has no shape yet (lazy initialisation); give its layer the width of its input, or "
                "run the model once"
            )
        if parameter.dtype != torch.float32:
            raise ModelError(f"parameter {name!r} is {parameter.dtype}; expected torch.float32: call model.float()")


def _require_plain_weights(model: torch.nn.Module) -> None:
    """Refuse layers whose weight torch computes anew in each forward, with the line that makes it a parameter again."""
    for name, module in model.named_modules():
        layer = f"model.{name}" if name else "model"
        for hook in module._forward_pre_hooks.values():
            kind, weight = type(hook).__name__, getattr(hook, "name", "weight")
            if kind in ("WeightNorm", "SpectralNorm"):
                words = "weight_norm" if kind == "WeightNorm" else "spectral_norm"
                raise ModelError(_NORMED.format(name, words, f"torch.nn.utils.remove_{words}({layer}, {weight!r})"))
        for weight, found in getattr(module, "parametrizations", {}).items():
            for one in found:
                kind = type(one).__name__.removeprefix("_")
                if type(one).__module__ == "torch.nn.utils.parametrizations":
                    line = f"torch.nn.utils.parametrize.remove_parametrizations({layer}, {weight!r})"
                    raise ModelError(_NORMED.format(name, kind, line))


def _require_no_hooks(model: torch.nn.Module) -> None:
    """Refuse hooks on gradients, which nothing would call: a plan computes the gradients."""
    found = [
        f"parameter {name!r}"
        for name, one in model.named_parameters()
        if one._backward_hooks or one._post_accumulate_grad_hooks
    ]
    found += [
        f"module {name!r}" for name, one in model.named_modules() if one._backward_hooks or one._backward_pre_hooks
    ]
    if found:
        raise ModelError(
            f"{found[0]} has a hook on its gradients, which would never run, because a plan computes them; freeze parameters by "
            "requires_grad_(False), give them another learning rate by groups of the optimizer, or use clip_grad_norm"
        )
