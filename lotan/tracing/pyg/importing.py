"""The tracing of one model that takes `edge_index`: what is replaced while it runs, and put back afterwards."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor

from lotan.errors import ModelError
from lotan.nn.edge_index import EdgeIndex
from lotan.tracing.fakes import GROUP, SEEN
from lotan.tracing.outputs import one_tensor
from lotan.tracing.pyg.data import GraphTensors
from lotan.tracing.pyg.edge_tensors import EdgeTensors, run_with, running
from lotan.tracing.pyg.layers import LAYERS
from lotan.tracing.pyg.leaves import LEAVES
from lotan.tracing.pyg.meanings import Index
from lotan.tracing.pyg.mode import EdgeMode
from lotan.tracing.signature import Wanted

PYG = "torch_geometric"


class Importer:
    """Calls a model with the tensors that its forward asks for.

    Args:
        wanted: the arguments that forward takes.
        weighted: if True, the edges have weights.
        flat: if True, attributes of edges were given as one number an edge, [num_edges] (default: False).
        groups: the number of groups of vertices, or None if the graph has none (default: None).
        label_rate: the share of labels that the model sees in training, or None if it sees none (default: None).
        order: the number of the attribute of edges by which neighbours are in order, or None for that of ids (default: None).
    """

    def __init__(
        self,
        wanted: Wanted,
        weighted: bool,
        flat: bool = False,
        groups: int | None = None,
        label_rate: float | None = None,
        order: int | None = None,
    ) -> None:
        self._wanted, self._flat, self._groups = wanted, flat, groups
        self._label_rate, self.order = label_rate, order
        self.weighted = weighted
        # the fewest types of edges that a layer of the trace distinguishes, and the layer's name
        self.types: tuple[int, str] | None = None

    def plain(self, features: Tensor, graph: EdgeIndex) -> dict[str, Any]:
        """Return the arguments for a run on plain tensors, with nothing replaced."""
        edges = graph.edges("graph")
        given = {"edge_weight": edges.weight, **edges.columns}
        if self._groups is not None:
            given |= {GROUP: features[:, -1].long()}
            features = features[:, :-1]
        if self._label_rate is not None:
            given |= self._seen(features[:, -1])
            features = features[:, :-1]
        return self._arguments(features, graph, edges.index, lambda name: self._shaped(name, given[name]))

    def example_weights(self, edges: int) -> Tensor | None:
        """Return weights [edges] for a check, each another number, or None if the graph has none."""
        if not self.weighted:
            return None
        return torch.linspace(0.5, 1.5, edges)[torch.randperm(edges, generator=torch.Generator().manual_seed(1))]

    def rows(self, features: Tensor) -> Tensor | None:
        """Return the positions of the rows that the model returns, int64 [rows], or None for all rows in order."""
        return None

    def output(self, result: Any, refuse: Callable[[str], ModelError]) -> Tensor:
        """Return the rows that forward returns.

        Raises:
            ModelError: it returns something else.
        """
        return one_tensor(result, refuse)

    @contextmanager
    def traced(
        self, model: torch.nn.Module, features: Any, graph: EdgeIndex, refuse: Callable[[str], ModelError]
    ) -> Iterator[dict[str, Any]]:
        """Give the arguments for a run on fake tensors, during which the functions that read edges are replaced.

        Args:
            model: the model.
            features: the rows of the vertices, or a dictionary of rows by the type of the vertices.
            graph: the graph.
            refuse: a function that returns the error for a reason, with the line that is running.
        """
        tensors = EdgeTensors(graph, self.weighted, refuse, self._groups, self.order)
        with run_with(tensors), _PATCH.applied(), self._types_noted(model, tensors), EdgeMode(tensors):
            yield self._given(tensors, features, graph, model)

    def _seen(self, label: Tensor) -> dict[str, Tensor]:
        """Return the classes and the mask that forward takes, given the class of each vertex, or -1. [num_vertices]."""
        return dict(zip(self._wanted.labels, (label.clamp(min=0).to(torch.int64), label >= 0), strict=False))

    def _given(self, tensors: EdgeTensors, features: Any, graph: EdgeIndex, model: torch.nn.Module) -> dict[str, Any]:
        """Return the arguments of a trace. Its mode is read only where they depend on it: see `watched_flags`."""
        seen: dict[str, Tensor] = {}
        if self._label_rate is not None:
            label = graph.column(SEEN)
            seen = self._seen(label)
            if model.training:
                mask = self._wanted.labels[1]
                shown = torch.ops.lotan.shown(label, self._label_rate)
                seen[mask] = (shown * (label >= 0)) > 0

        def column(name: str) -> Tensor:
            if name == GROUP:
                return tensors.group()
            if name in seen:
                return seen[name]
            column = tensors.weight("graph") if name == "edge_weight" else tensors.column(name, "graph")
            return self._shaped(name, column)

        return self._arguments(features, graph, tensors.index(Index("graph")), column)

    def _shaped(self, name: str, column: Tensor) -> Tensor:
        """Return a column of edges as PyG has it: attributes that were given as [num_edges] have that shape."""
        return column.squeeze(-1) if name == "edge_attr" and self._flat else column

    def _arguments(
        self, features: Tensor, graph: EdgeIndex, index: Tensor, column: Callable[[str], Tensor]
    ) -> dict[str, Any]:
        index.lotan_graph = graph  # type: ignore[attr-defined]  # layers of lotan.nn look for it
        given: dict[str, Any] = {self._wanted.features: features} if self._wanted.features else {}
        given |= dict.fromkeys(self._wanted.index, index)
        if self._wanted.numbers:
            given[self._wanted.numbers] = torch.arange(features.shape[0])
        given |= {name: column(name) for name in (*self._wanted.of_edges, *self._wanted.groups, *self._wanted.labels)}
        return {self._wanted.whole: GraphTensors(given)} if self._wanted.whole else given

    @contextmanager
    def _types_noted(self, model: torch.nn.Module, tensors: EdgeTensors) -> Iterator[None]:
        """Note how many types of edges a layer was made for, if it is given the types."""
        names = {module: name for name, module in model.named_modules()}

        def note(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
            given = [tensors.columns.get(value) for value in (*args, *kwargs.values())]
            if any(found is not None and found[0] == "edge_type" for found in given):
                here = int(module.num_relations), names[module]  # type: ignore[arg-type]
                self.types = here if self.types is None else min(self.types, here)

        handles = [
            module.register_forward_pre_hook(note, with_kwargs=True)
            for module in names
            if isinstance(getattr(module, "num_relations", None), int)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


@contextmanager
def without_caches(model: torch.nn.Module) -> Iterator[None]:
    """Run a model without what its layers have kept of another graph, and put its attributes back afterwards.

    A layer that was made with `cached=True` keeps the first graph it sees, which would be that of a trace.
    """
    before = [(module, dict(vars(module))) for module in model.modules()]
    for module, attributes in before:
        for name in attributes:
            if name == "cached":
                module.__dict__[name] = False
            elif name.startswith("_cached"):
                module.__dict__[name] = None
    try:
        yield
    finally:
        for module, attributes in before:
            module.__dict__.clear()
            module.__dict__.update(attributes)


def _redirected(*args: Any, **kwargs: Any) -> Any:
    """Call what runs in place of a function of PyG. While a model is traced, the function has the code of this one."""
    from lotan.tracing.pyg.importing import REDIRECTED  # the code runs in the namespace of another module

    return REDIRECTED["a name"](*args, **kwargs)


REDIRECTED: dict[str, Callable[..., Any]] = {}
"""The functions that are called in place of those of PyG, by the full names of these.

Other threads may call one for a moment after a trace.
"""


class _Patch:
    """Puts the replacements in place while at least one thread traces. In other threads, they call the originals.

    A function gets other code, and stays the object that it is. So it is replaced under every name that a model has for it:
    in a namespace, a closure, a dictionary or an attribute.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tracing = 0
        self._changed: list[tuple[Any, str, Any]] = []

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Keep the replacements in place."""
        with self._lock:
            self._apply()
            self._tracing += 1
        try:
            yield
        finally:
            with self._lock:
                self._tracing -= 1
                if not self._tracing:
                    self._restore()

    def _apply(self) -> None:
        """Replace what is loaded by now and not replaced yet."""
        for leaf in LEAVES:
            name = f"{leaf.module}.{leaf.name}"
            found = getattr(sys.modules.get(leaf.module), leaf.name, None)
            function: Any = found and inspect.unwrap(found)
            if function is not None and function.__code__.co_name != _redirected.__name__:
                REDIRECTED[name] = _replaced(_copy(function), leaf.call)
                self._change(function, "__code__", _code_for(name))
        for layer in LAYERS:
            kind = getattr(sys.modules.get(layer.module), layer.name, None)
            if kind is not None and not hasattr(kind.forward, "lotan_original"):
                self._change(kind, "forward", _replaced(kind.forward, layer.call))
        backend = sys.modules.get(f"{PYG}.backend")
        if backend is not None and backend.use_segment_matmul is not False:  # else edges are counted by relation
            self._change(backend, "use_segment_matmul", False)

    def _change(self, owner: Any, name: str, value: Any) -> None:
        self._changed.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _restore(self) -> None:
        for owner, name, value in reversed(self._changed):
            setattr(owner, name, value)
        self._changed.clear()


_PATCH = _Patch()


Replacement = Callable[[EdgeTensors, Any, Any, Any], Any]
"""A function of the edges of the trace, the original, its arguments and its keyword arguments."""


@functools.cache
def _replaced(original: Any, replacement: Replacement) -> Any:
    """Return a function that calls the replacement in a thread that traces, and else the original."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        tensors = running()
        return original(*args, **kwargs) if tensors is None else replacement(tensors, original, args, kwargs)

    call.lotan_original = original  # type: ignore[attr-defined]
    return call


@functools.cache
def _copy(function: FunctionType) -> FunctionType:
    """Return a function of its own with the same code."""
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _code_for(name: str) -> CodeType:
    """Return the code of `_redirected` for a function of this name."""
    mine = _redirected.__code__
    return mine.replace(co_consts=tuple(name if one == "a name" else one for one in mine.co_consts))
