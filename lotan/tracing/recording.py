"""The recording of a model: torch.fx records its operators while it runs on fake tensors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from lotan.errors import ModelError
from lotan.nn.edge_index import EdgeIndex, Edges
from lotan.tracing.graph_columns import GraphColumns
from lotan.tracing.pyg import Importer
from lotan.tracing.refusals import MIXED_ROWS
from lotan.tracing.scope import Scope
from planner.edge_columns import LOOP, EdgeData
from planner.spec import EdgeSet, Rows, Tracked

# The row counts of the fake graph. They are different primes, so that no width divides them; otherwise they mean nothing.
_VERTICES = 10007
_EDGES: Mapping[EdgeSet, int] = {
    "graph": 20011,
    "self_loops": 30011,
    "reversed": 40009,
    "reversed_self_loops": 50021,
}
# these counts must lead to the same trace
_OTHER_COUNTS = ((3, 5, 7, 11, 13), (1000003, 500009, 2000003, 700001, 2500009))
_COLUMNS = ("in_degree", "gcn_scale@graph", "gcn_scale@self_loops")


@dataclass(frozen=True)
class Symbols:
    """The row counts of a recording, by which the rows of a tensor are recognised."""

    vertices: Any  # torch.SymInt
    edges: Mapping[EdgeSet, Any]

    def rows(self, size: Any) -> tuple[Rows, EdgeSet | None] | None:
        """Return the kind of rows of a tensor whose first dimension is `size`.

        The result is None if `size` is neither a number nor one of the row counts.
        """
        if isinstance(size, int):
            return "none", None
        if size.node.expr == self.vertices.node.expr:
            return "vertex", None
        for name, count in self.edges.items():
            if size.node.expr == count.node.expr:
                return "edge", name
        return None


@dataclass(frozen=True)
class Recording:
    """A model's operators as torch.fx recorded them.

    Attributes:
        module: the graph of operators, and the constants that it reads.
        inputs: the meaning of each placeholder, in order: a parameter's name, "features", or None for a tensor of the
            graph.
        symbols: the row counts.
        tracked: the layers with running statistics that a training step changes.
        types: the fewest types of edges that a layer tells apart, and the layer's name, or None.
    """

    module: torch.fx.GraphModule
    inputs: tuple[str | None, ...]
    symbols: Symbols
    tracked: tuple[Tracked, ...] = ()
    types: tuple[int, str] | None = None


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
    fakes = _Fakes(environment, parameters, columns)

    def run(*values: Tensor) -> Tensor:
        features, *others = values[len(parameters) :]
        given, graph = dict(zip(parameters, values, strict=False)), fakes.graph(others)
        if importer is None:
            result = scope.run(given, (features, graph), {})
        else:
            with importer.traced(model, features, graph, scope.error) as keywords:
                result = scope.run(given, (), keywords)
        if not isinstance(result, Tensor):
            raise scope.error(f"forward returns {type(result).__name__}; expected one tensor [num_vertices, outputs]")
        return result

    module = _made(run, fakes.inputs, scope, environment)
    if importer is not None:
        _erase_unread(module)  # such as a row of edge_index whose reader became a graph operator
    others = len(fakes.inputs) - len(parameters) - 1
    tracked = tuple(scope.norms.tracked.values())
    types = None if importer is None else importer.types
    return Recording(module, (*parameters, "features", *[None] * others), fakes.symbols, tracked, types)


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
    mode = FakeTensorMode(shape_env=environment)
    empty = [torch.empty(_VERTICES, *value.shape[1:], dtype=value.dtype) for value in inputs.values()]
    fakes = [_fake(mode, value, 0) for value in empty]

    def run(*values: Tensor) -> Tensor:
        result = scope.run({}, values, {})
        if not isinstance(result, Tensor):
            raise scope.error(f"returns {type(result).__name__}; expected one tensor with a row for each vertex")
        return result

    recorded = _made(run, fakes, scope, environment)
    return Recording(recorded, tuple(inputs), Symbols(fakes[0].shape[0], {}))


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


def _fake(mode: FakeTensorMode, value: Tensor, rows: int) -> Tensor:
    """Return a fake of `value` whose dimension `rows` is a symbol. Equal sizes have the same symbol."""
    sizes = [DimDynamic.DUCK if dim == rows else DimDynamic.STATIC for dim in range(value.dim())]
    return mode.from_tensor(value, symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes))


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


class _Fakes:
    """The fake inputs of a recording: parameters, features, edge sets with their columns, and static columns."""

    def __init__(self, environment: ShapeEnv, parameters: Mapping[str, Tensor], given: GraphColumns) -> None:
        self._mode = FakeTensorMode(shape_env=environment)
        fixed = [self._mode.from_tensor(value, static_shapes=True) for value in parameters.values()]
        features = self._fake(torch.empty(_VERTICES, given.width), 0)
        of_sets = [self._edges(count, given.data) for count in _EDGES.values()]
        columns = [self._fake(torch.empty(_VERTICES), 0) for _ in _COLUMNS]
        self._names = [*["edge_attr"] * (given.data.width is not None), *["edge_type"] * given.data.typed, LOOP]
        self.inputs: list[Tensor] = [*fixed, features, *chain.from_iterable(of_sets), *columns]
        counts = {name: weight.shape[0] for name, (_, weight, *_) in zip(_EDGES, of_sets, strict=True)}
        self.symbols = Symbols(features.shape[0], counts)

    def graph(self, values: list[Tensor]) -> EdgeIndex:
        """Return the graph that layers see, made of the inputs after the features."""
        columns = values[-len(_COLUMNS) :]
        count, of_set = columns[0].shape[0], 2 + len(self._names)
        sets: dict[EdgeSet, Edges] = {}
        for number, name in enumerate(_EDGES):
            index, weight, *data = values[number * of_set : (number + 1) * of_set]
            sets[name] = Edges(name, index, weight, count, dict(zip(self._names, data, strict=True)))
        return EdgeIndex.of(sets, dict(zip(_COLUMNS, columns, strict=True)), count)

    def _edges(self, count: int, data: EdgeData) -> list[Tensor]:
        """Return the index and the weights of an edge set, then its columns: attributes and types only if there are any."""
        found = [self._fake(torch.empty(2, count, dtype=torch.int64), 1), self._fake(torch.empty(count), 0)]
        if data.width is not None:
            found.append(self._fake(torch.empty(count, data.width), 0))
        if data.typed:
            found.append(self._fake(torch.empty(count, dtype=torch.int64), 0))
        return [*found, self._fake(torch.empty(count, 1), 0)]

    def _fake(self, value: Tensor, rows: int) -> Tensor:
        return _fake(self._mode, value, rows)


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
    return all(bool(guard.xreplace(dict(zip(symbols, counts, strict=False)))) for counts in _OTHER_COUNTS)
