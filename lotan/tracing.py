"""Tracing: a model as torch modules to a `planner.spec.Spec`.

The model runs once on fake tensors (shapes without data) whose numbers of vertices and edges are symbols, and torch.fx writes
down every operator before autograd or decompositions take it apart. `lotan.transcription` turns that into calls and refuses
what mixes rows; `lotan.trace_check` then compares the calls with the model itself on a small graph.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn.modules.batchnorm import _NormBase
from torch.overrides import TorchFunctionMode

from lotan.errors import ModelError
from lotan.nn.edge_index import EdgeIndex, Edges
from lotan.trace_check import check_trace
from lotan.transcription import DEPENDS_ON_VALUES, FOREIGN_TENSOR, MIXED_ROWS, Symbols, Transcript, located, user_line
from planner.spec import ParameterSpec, Spec

# Row counts of the fake graph. Their values mean nothing, but are primes so that no width divides them, and all different.
_VERTICES, _EDGES, _EDGES_WITH_LOOPS = 10007, 20011, 30011
_OTHER_COUNTS = ((3, 5, 7), (1000003, 500009, 2000003))  # what must not change the trace
_COLUMNS = ("in_degree", "gcn_scale@graph", "gcn_scale@self_loops")


def trace(model: torch.nn.Module, width: int, training: bool) -> Spec:
    """Write a model down as a Spec.

    Args:
        model: its `forward(x, graph)` takes the features [num_vertices, width] and the graph for its layers, and returns
            [num_vertices, outputs]. Its training flags are as before afterwards.
        width: of the features.
        training: whether it is traced as in training (dropout is there) or evaluation.

    Raises:
        ModelError: the model cannot be traced, mixes rows, or uses what is not supported; names the layer, the line, and
            what to write instead.
    """
    parameters = _parameters(model)
    _require_float32(model)
    scope = _Scope(model)
    with _mode(model, training):
        graph_module, symbols, inputs = _record(model, parameters, width, scope)
        specs = tuple(_parameter_spec(name, value) for name, value in parameters.items())
        spec = Transcript(width, specs, inputs, symbols).spec(graph_module)
        check_trace(model, parameters, spec)
    return spec


def _parameters(model: torch.nn.Module) -> dict[str, Tensor]:
    """Parameters, then buffers, by name; one that is shared appears once."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _parameter_spec(name: str, value: Tensor) -> ParameterSpec:
    return ParameterSpec(name, tuple(value.shape), value.requires_grad, str(value.dtype).removeprefix("torch."))


def _require_float32(model: torch.nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise ModelError(
                f"parameter {name!r} has no shape yet (lazy initialisation); give its layer the width of its input"
            )
        if parameter.dtype != torch.float32:
            raise ModelError(f"parameter {name!r} is {parameter.dtype}; expected torch.float32: call model.float()")


@contextmanager
def _mode(model: torch.nn.Module, training: bool) -> Iterator[None]:
    flags = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, flag in flags:
            module.training = flag


def _record(
    model: torch.nn.Module, parameters: dict[str, Tensor], width: int, scope: _Scope
) -> tuple[torch.fx.GraphModule, Symbols, list[str | None]]:
    """Run the model on fake tensors. Returns the graph, its symbols, and what each placeholder stands for."""
    environment = _Environment(scope)
    fakes = _Fakes(environment, parameters, width)
    names: list[str | None] = [*parameters, "features"]
    names += [None] * (len(fakes.inputs) - len(names))

    def run(*values: Tensor) -> Tensor:
        given = dict(zip(parameters, values, strict=False))
        graph = fakes.graph(values[len(parameters) + 1 :])
        with _Notes(scope):
            result = _run_model(model, given, values[len(parameters)], graph)
        if not isinstance(result, Tensor):
            raise scope.error(f"forward returns {type(result).__name__}; expected one tensor [num_vertices, outputs]")
        return result

    try:
        with scope.watched(), fx_traceback.preserve_node_meta(), torch.enable_grad():
            graph_module = make_fx(run, tracing_mode="symbolic", pre_dispatch=True)(*fakes.inputs)
    except ModelError:
        raise
    except Exception as error:
        raise environment.objection or _explain(error, scope) from error
    if environment.objection is not None:
        raise environment.objection
    return graph_module, fakes.symbols, names


class _Fakes:
    """The inputs of a trace, without data: parameters, features, edge sets, weights, static columns."""

    def __init__(self, environment: ShapeEnv, parameters: dict[str, Tensor], width: int) -> None:
        self._mode = FakeTensorMode(shape_env=environment)
        fixed = [self._mode.from_tensor(value, static_shapes=True) for value in parameters.values()]
        self._features = self._fake(torch.empty(_VERTICES, width), 0)
        edges = [
            fake
            for count in (_EDGES, _EDGES_WITH_LOOPS)
            for fake in (
                self._fake(torch.empty(2, count, dtype=torch.int64), 1),
                self._fake(torch.empty(count), 0),
            )
        ]
        columns = [self._fake(torch.empty(_VERTICES), 0) for _ in _COLUMNS]
        self.inputs: list[Tensor] = [*fixed, self._features, *edges, *columns]
        self.symbols = Symbols(self._features.shape[0], {"graph": edges[1].shape[0], "self_loops": edges[3].shape[0]})

    def graph(self, values: tuple[Tensor, ...]) -> EdgeIndex:
        """The graph token, of what `inputs` holds after the features."""
        index, weight, index_with_loops, weight_with_loops, *columns = values
        count = columns[0].shape[0]
        return EdgeIndex.of(
            {
                "graph": Edges("graph", index, weight, count),
                "self_loops": Edges("self_loops", index_with_loops, weight_with_loops, count),
            },
            dict(zip(_COLUMNS, columns, strict=True)),
            count,
        )

    def _fake(self, value: Tensor, rows: int) -> Tensor:
        sizes = [DimDynamic.DUCK if dim == rows else DimDynamic.STATIC for dim in range(value.dim())]
        return self._mode.from_tensor(value, symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes))


class _Environment(ShapeEnv):
    """Symbolic sizes that object to whatever depends on the number of rows, where it happens."""

    def __init__(self, scope: _Scope) -> None:
        super().__init__()
        self._scope = scope
        self._seen = 0
        self.objection: ModelError | None = None

    def evaluate_expr(self, *args: Any, **kwargs: Any) -> Any:
        value = super().evaluate_expr(*args, **kwargs)
        new, self._seen = self.guards[self._seen :], len(self.guards)
        for guard in new:
            if self.objection is None and not _holds_for_other_counts(guard.expr):
                self.objection = self._scope.error(MIXED_ROWS)
        return value


def _holds_for_other_counts(guard: Any) -> bool:
    symbols = sorted(guard.free_symbols, key=str)
    return all(
        bool(guard.xreplace(dict(zip(symbols, counts, strict=False)))) for counts in _OTHER_COUNTS if len(symbols) <= 3
    )


class _Scope:
    """Follows which module's forward is under way, and refuses modules that cannot be."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._names = {id(module): name for name, module in model.named_modules()}
        self._open: list[str] = []
        self.failed = ""  # the innermost layer an exception left

    @property
    def layer(self) -> str:
        """Qualified name of the innermost module under way."""
        return self._open[-1] if self._open else ""

    @property
    def line(self) -> str:
        """The user's line under way."""
        return _line_of(list(traceback.walk_stack(sys._getframe(1)))[::-1])

    def error(self, reason: str) -> ModelError:
        """A ModelError for the line under way."""
        return located(self.layer, self.line, reason)

    @contextmanager
    def watched(self) -> Iterator[None]:
        handles = [
            handle
            for module in self._model.modules()
            for handle in (
                module.register_forward_pre_hook(self._enter, prepend=True),
                module.register_forward_hook(self._leave, always_call=True),
            )
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        self._open.append(self._names[id(module)])
        self.failed = ""
        if isinstance(module, _NormBase):
            raise self.error(
                f"{type(module).__name__} normalises over all vertices, which is not supported; use torch.nn.LayerNorm"
            )
        self._check_width(module, arguments)

    def _leave(self, module: torch.nn.Module, arguments: tuple[Any, ...], result: Any) -> None:
        if result is None and not self.failed:
            self.failed = self.layer
        self._open.pop()

    def _check_width(self, module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        ours = type(module).__module__.startswith("lotan.nn")
        expected = getattr(module, "in_features" if isinstance(module, torch.nn.Linear) else "in_channels", None)
        if not (ours or isinstance(module, torch.nn.Linear)) or not arguments or not isinstance(arguments[0], Tensor):
            return
        given = arguments[0].shape[-1] if arguments[0].dim() else 1
        if isinstance(expected, int) and isinstance(given, int) and given != expected:
            raise self.error(
                f"{type(module).__name__} got rows of width {given}, but its in_channels is {expected}; "
                f"make it in_channels={given}"
            )


class _Notes(TorchFunctionMode):
    """Notes layer and line beside every operator, where torch.fx copies it to the node."""

    def __init__(self, scope: _Scope) -> None:
        super().__init__()
        self._scope = scope

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        fx_traceback.current_meta["custom"] = {"layer": self._scope.layer, "where": self._scope.line}
        return func(*args, **(kwargs or {}))


def _explain(error: Exception, scope: _Scope) -> ModelError:
    """A typed error for whatever the model's forward raised."""
    text, kind = str(error).strip().split("\n")[0], type(error).__name__
    if "DataDependent" in kind or "data-dependent" in text or "on a meta tensor" in text:
        reason = DEPENDS_ON_VALUES
    elif "convert all Tensors to FakeTensors" in text:
        reason = FOREIGN_TENSOR
    elif re.search(r"\(s\d+\)", text):  # two sizes that differ, one of them a number of rows
        reason = f"{MIXED_ROWS} ({text.rstrip(')')})"
    else:
        reason = f"forward failed while it was traced: {kind}: {text}"
    return located(scope.failed or scope.layer, _line_of(list(traceback.walk_tb(error.__traceback__))), reason)


def _line_of(frames: list[tuple[Any, int]]) -> str:
    """The user's line among frames, outermost first: what lies inside the model's forward."""
    start = max((i for i, (frame, _) in enumerate(frames) if frame.f_code is _run_model.__code__), default=len(frames))
    return user_line([(frame.f_code.co_filename, line) for frame, line in frames[start + 1 :]])


def _run_model(model: torch.nn.Module, parameters: dict[str, Tensor], features: Tensor, graph: EdgeIndex) -> Any:
    """Call the model; this frame is where its own begin."""
    return torch.func.functional_call(model, parameters, (features, graph))
