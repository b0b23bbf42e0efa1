"""The tracing of one model that takes `edge_index`: what is replaced while it runs, and put back afterwards."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lotan.errors import ModelError
from lotan.nn.edge_index import EdgeIndex
from lotan.tracing.pyg.edge_tensors import EdgeTensors, Index, run_with, running
from lotan.tracing.pyg.layers import LAYERS
from lotan.tracing.pyg.leaves import LEAVES, Replacement
from lotan.tracing.pyg.mode import EdgeMode
from lotan.tracing.signature import Wanted

PYG = "torch_geometric"


class Importer:
    """Calls a model with the tensors that its forward asks for.

    Args:
        wanted: the arguments that forward takes.
        weighted: if True, the graph has weights.
    """

    def __init__(self, wanted: Wanted, weighted: bool) -> None:
        self._wanted = wanted
        self._weighted = weighted

    def plain(self, features: Tensor, graph: EdgeIndex) -> dict[str, Tensor]:
        """Return the arguments for a run on plain tensors, with nothing replaced."""
        edges = graph.edges("graph")
        return self._arguments(features, graph, edges.index, edges.weight)

    def example_weights(self, edges: int) -> Tensor | None:
        """Return weights [edges] for a check, or None if the graph has none."""
        if not self._weighted:
            return None
        return torch.linspace(0.5, 1.5, edges)[torch.randperm(edges, generator=torch.Generator().manual_seed(1))]

    @contextmanager
    def traced(
        self, model: torch.nn.Module, features: Tensor, graph: EdgeIndex, refuse: Callable[[str], ModelError]
    ) -> Iterator[dict[str, Tensor]]:
        """Give the arguments for a run on fake tensors, during which the functions that read edges are replaced."""
        tensors = EdgeTensors(graph, self._weighted, refuse)
        weight = tensors.weight("graph")
        with run_with(tensors), _PATCH.applied(model), EdgeMode(tensors):
            yield self._arguments(features, graph, tensors.index(Index("graph")), weight)

    def _arguments(self, features: Tensor, graph: EdgeIndex, index: Tensor, weight: Tensor) -> dict[str, Tensor]:
        index.lotan_graph = graph  # type: ignore[attr-defined]  # layers of lotan.nn look for it
        given = {self._wanted.features: features, **dict.fromkeys(self._wanted.index, index)}
        return given if self._wanted.weight is None else {**given, self._wanted.weight: weight}


@contextmanager
def without_caches(model: torch.nn.Module) -> Iterator[None]:
    """Run a model as if no layer had kept anything of another graph, and leave its attributes as they were.

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


class _Patch:
    """Puts the replacements in place while at least one thread traces. They act in threads that trace only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tracing = 0
        self._changed: list[tuple[Any, str, Any]] = []

    @contextmanager
    def applied(self, model: torch.nn.Module) -> Iterator[None]:
        """Have the replacements in place, also in the modules that define the classes of a model."""
        if PYG not in sys.modules:
            yield
            return
        with self._lock:
            self._tracing += 1
            self._apply(model)
        try:
            yield
        finally:
            with self._lock:
                self._tracing -= 1
                if not self._tracing:
                    self._restore()

    def _apply(self, model: torch.nn.Module) -> None:
        replaced = {id(original): leaf for original, leaf in _leaves()}
        names = {name for _, name, _ in LEAVES}
        for namespace in _own_namespaces():
            self._replace(namespace, list(namespace), replaced)
        for namespace in _other_namespaces(model):
            self._replace(namespace, names & namespace.keys(), replaced)
        for module, name, forward in LAYERS:
            kind = getattr(sys.modules.get(module), name, None)
            if kind is not None and not hasattr(kind.forward, "lotan_original"):
                self._changed.append((kind, "forward", kind.forward))
                kind.forward = _leaf(kind.forward, forward)
        backend = sys.modules.get(f"{PYG}.backend")
        if backend is not None and backend.use_segment_matmul is not False:  # else edges are counted by relation
            self._changed.append((backend, "use_segment_matmul", backend.use_segment_matmul))
            backend.use_segment_matmul = False  # type: ignore[attr-defined]

    def _replace(self, namespace: dict[str, Any], names: Any, replaced: dict[int, Any]) -> None:
        for name in names:
            value = namespace[name]
            if id(value) in replaced:
                self._changed.append((namespace, name, value))
                namespace[name] = replaced[id(value)]

    def _restore(self) -> None:
        for owner, name, value in reversed(self._changed):
            if isinstance(owner, dict):
                owner[name] = value
            else:
                setattr(owner, name, value)
        self._changed.clear()


_PATCH = _Patch()


@functools.cache
def _leaf(original: Any, replacement: Replacement) -> Any:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        tensors = running()
        return original(*args, **kwargs) if tensors is None else replacement(tensors, original, *args, **kwargs)

    call.lotan_original = original  # type: ignore[attr-defined]
    return call


def _leaves() -> Iterator[tuple[Any, Any]]:
    """Yield each function that is replaced, as far as this version of PyG has it, and its replacement."""
    for module, name, replacement in LEAVES:
        found = getattr(sys.modules.get(module), name, None)
        if found is not None:
            original = getattr(found, "lotan_original", found)
            yield original, _leaf(original, replacement)


def _own_namespaces() -> list[dict[str, Any]]:
    return [
        vars(module) for name, module in list(sys.modules.items()) if name.split(".")[0] == PYG and module is not None
    ]


def _other_namespaces(model: torch.nn.Module) -> list[dict[str, Any]]:
    """Return the namespaces of all other modules, and of the functions that make up a model's classes."""
    found = [getattr(module, "__dict__", {}) for module in list(sys.modules.values())]
    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    functions = [value for kind in kinds for value in vars(kind).values()]
    return [*found, *(value.__globals__ for value in functions if hasattr(value, "__globals__"))]
