"""The recording of a model: torch.fx records its operators while it runs on fake tensors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from lotan.errors import ModelError
from lotan.tracing.fakes import FIRST_COUNT, Fakes, Symbols, fake, fake_mode, other_counts
from lotan.tracing.graph_columns import GraphColumns
from lotan.tracing.learned import VertexNumbers
from lotan.tracing.outputs import Further, joined, one_tensor
from lotan.tracing.pyg.importing import Importer
from lotan.tracing.refusals import MIXED_ROWS
from lotan.tracing.scope import Scope
from planner.spec import Tracked
from planner.vertex_types import VertexTypes


@dataclass(frozen=True)
class Recording:
    """A model's operators as torch.fx recorded them.

    Attributes:
        module: the graph of operators, and the constants that it reads.
        inputs: the meaning of each placeholder, in order. It is a parameter's name, or "learned:name" if it has a row for each
            vertex; "features", or "features:3" for those of a type of vertices; or None for a tensor of the graph.
        symbols: the row counts.
        tracked: the layers with running statistics that a training step changes.
        types: the fewest types of edges that a layer tells apart, and the layer's name, or None.
        vertex_types: the types of vertices of the graph, or None if it has one.
        groups: the number of groups of vertices, or None.
        label_rate: the share of labels that the model sees in training, or None if it sees none.
        further: the further tensors that forward returns for the loss, each with the shape of a row.
    """

    module: torch.fx.GraphModule
    inputs: tuple[str | None, ...]
    symbols: Symbols
    tracked: tuple[Tracked, ...] = ()
    types: tuple[int, str] | None = None
    vertex_types: VertexTypes | None = None
    groups: int | None = None
    label_rate: float | None = None
    further: Further = ()


def record(
    model: torch.nn.Module,
    parameters: Mapping[str, Tensor],
    columns: GraphColumns,
    importer: Importer | None = None,
) -> Recording:
    """Run a model on fake tensors and return the recording.

    Args:
        model: the model, in training or evaluation mode as it is to be recorded.
        parameters: all its parameters and buffers, by name.
        columns: the columns of the graph.
        importer: what calls a forward that takes tensors, or None for a `forward(x, graph)` (default: None).

    Raises:
        ModelError: the model's forward fails, branches on values, or depends on the number of rows.
    """
    scope = Scope(model, columns.width)
    environment = _Environment(scope)
    fakes = Fakes(environment, parameters, columns)

    further: list[Further] = []

    def together(result: Any) -> Any:
        if columns.further:
            result, shapes = joined(result, columns.further, scope.error)
            further.append(shapes)
        return result

    def run(*values: Tensor) -> Tensor:
        given = dict(zip(parameters, values, strict=False))
        features, graph, counts = fakes.graph(values[len(parameters) :])
        with VertexNumbers(
            {columns.vertices[number]: counts[number] for _, number in columns.learned if columns.vertices}
        ):
            if importer is None:
                return one_tensor(together(scope.run(given, (features, graph), {})), scope.error)
            with importer.traced(model, features, graph, scope.error) as keywords:
                return importer.output(together(scope.run(given, (), keywords)), scope.error)

    module = _made(run, fakes.inputs, scope, environment)
    if importer is not None:
        _erase_unread(module)  # such as a row of edge_index whose reader became a graph operator
    tracked = tuple(scope.norms.tracked.values())
    types = None if importer is None else importer.types
    of_graph = columns.types, columns.groups, columns.label_rate
    return Recording(module, fakes.meanings, fakes.symbols, tracked, types, *of_graph, further[-1] if further else ())


def record_rows(module: torch.nn.Module, inputs: Mapping[str, Tensor]) -> Recording:
    """Run a module whose forward takes rows of vertices alone, by position, and return the recording.

    Args:
        module: the module, which has neither parameters nor buffers.
        inputs: for each argument of forward, its name and a tensor that has its dtype and the shape of its rows. The number
            of rows does not matter.

    Raises:
        ModelError: its forward fails, branches on values, or depends on the number of rows.
    """
    scope = Scope(module)
    environment = _Environment(scope)
    mode = fake_mode(environment)
    empty = [torch.empty(FIRST_COUNT, *value.shape[1:], dtype=value.dtype) for value in inputs.values()]
    fakes = [fake(mode, value, 0) for value in empty]

    def run(*values: Tensor) -> Tensor:
        result = scope.run({}, values, {})
        if not isinstance(result, Tensor):
            raise scope.error(f"returns {type(result).__name__}; expected one tensor with a row for each vertex")
        return result

    recorded = _made(run, fakes, scope, environment)
    return Recording(recorded, tuple(inputs), Symbols((fakes[0].shape[0],), {}))


def _made(run: Callable[..., Tensor], inputs: list[Tensor], scope: Scope, environment: _Environment) -> Any:
    """Return torch.fx's module of the operators that `run` calls on fake inputs."""
    try:
        with scope.watched(), torch.enable_grad(), _without_logging():
            module = make_fx(run, tracing_mode="symbolic", pre_dispatch=True)(*inputs)
    except ModelError:
        raise
    except Exception as error:  # a user's forward may raise any error
        raise environment.objection or scope.explain(error) from error
    if environment.objection is not None:
        raise environment.objection
    return module


def _erase_unread(module: torch.fx.GraphModule) -> None:
    for node in reversed(list(module.graph.nodes)):
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            continue  # it may write to what another node reads
        if node.op == "call_function" and not node.users and node.target is not torch._C._set_grad_enabled:
            module.graph.erase_node(node)


@contextmanager
def _without_logging() -> Iterator[None]:
    """Silence torch's log, which has a traceback for every operator that does not fit. The error's text says the same."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


class _Environment(ShapeEnv):
    """Symbolic sizes that raise an error at the line where a result depends on the number of rows."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._scope = scope
        self._seen = 0
        self.objection: ModelError | None = None  # the first error

    def _get_stack_summary(self, is_debug: bool = False, framework_loc: str | None = None) -> Any:
        """Give a place, if only an empty one: torch would load its exporter to find one, and the errors here have theirs."""
        return super()._get_stack_summary(is_debug, framework_loc or "")

    def evaluate_expr(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate an expression of sizes. torch adds the assumptions that it made for it to the guards."""
        value = super().evaluate_expr(*args, **kwargs)
        new, self._seen = self.guards[self._seen :], len(self.guards)
        if self.objection is None and not all(_holds_for_other_counts(guard.expr) for guard in new):
            self.objection = self._scope.error(MIXED_ROWS)
            raise self.objection  # at once, because a loop over all rows may follow
        return value


def _holds_for_other_counts(guard: Any) -> bool:
    symbols = sorted(guard.free_symbols, key=str)
    return all(bool(guard.xreplace(dict(zip(symbols, counts, strict=True)))) for counts in other_counts(len(symbols)))
