"""The parameters of a model that have a row for each vertex: those of LearnedFeatures, embeddings and other tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lotan.errors import ModelError
from lotan.nn.learned_features import LearnedFeatures
from planner.spec import Spec
from planner.vertex_types import VertexTypes

OTHER_LOOKUP = (
    "looks up learned rows by something else than the vertices themselves; take the rows of all vertices, in their order, and "
    "let vertices meet along edges, in a lotan.nn.MessagePassing layer"
)


def learned_rows(model: torch.nn.Module, vertices: Sequence[int], types: VertexTypes | None = None) -> dict[str, int]:
    """Return the parameters that may have a row for each vertex, each with the number of the vertices' type.

    Args:
        model: the model.
        vertices: the number of vertices of each type, or () if they are not known. A table of so many rows, such as an
            embedding, is taken for learned rows. Of several types with as many vertices, it is that which the table's name
            has, or the first.
        types: the types of vertices; None for one type, whose number is 0.

    Raises:
        ModelError: a LearnedFeatures names no type of vertices of the graph.
    """
    found: dict[str, int] = {}
    for name, module in model.named_modules():
        if isinstance(module, LearnedFeatures):
            found[f"{name}.weight".lstrip(".")] = type_of(name, module, types)
            continue
        for key, table in _tables(module):
            parameter = f"{name}.{key}".lstrip(".")
            fitting = [number for number, count in enumerate(vertices) if count == len(table)]
            named = [number for number in fitting if types is not None and types.names[number] in parameter.split(".")]
            if fitting:
                found[parameter] = (named or fitting)[0]
    shared = dict(model.named_parameters())  # a parameter that is shared appears once
    return {name: number for name, number in found.items() if name in shared}


def unfitting_tables(model: torch.nn.Module, vertices: Sequence[int]) -> str:
    """Return in words which embeddings have not a row for each vertex, if none has; "" if one has, or there are none.

    Args:
        model: the model.
        vertices: the number of vertices of each type.
    """
    found = {f"{name}.weight".lstrip("."): len(one.weight) for name, one in model.named_modules()
             if isinstance(one, torch.nn.Embedding)}  # fmt: skip
    if not found or set(found.values()) & set(vertices):
        return ""
    rows = ", ".join(f"{name} has {count:,} rows" for name, count in found.items())
    return (
        f"; {rows}, and the graph has {' and '.join(f'{count:,}' for count in vertices)} vertices: an embedding is taken for "
        "learned rows of vertices if it has a row for each"
    )


def _tables(module: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters of a module that are tables, whose rows may be those of vertices, each with its name."""
    if isinstance(module, torch.nn.Embedding):
        if module.max_norm is None:
            yield "weight", module.weight
    elif isinstance(module, torch.nn.ParameterDict | torch.nn.ParameterList):
        lazy = torch.nn.parameter.UninitializedParameter
        given = module.named_parameters(recurse=False)
        yield from ((name, one) for name, one in given if not isinstance(one, lazy) and one.dim() > 1)
    elif type(module).__name__ == "SparseLinear" and type(module).__module__.startswith("torch_geometric."):
        yield "weight", module.weight  # type: ignore[misc]  # of LINKX: a linear map of a row of the adjacency matrix


def type_of(name: str, module: LearnedFeatures, types: VertexTypes | None) -> int:
    """Return the number of the type of the vertices that have a row of a module.

    Raises:
        ModelError: the module names no type of the graph.
    """
    asked, there = module.vertex_type, () if types is None else types.names
    if types is None and asked is None:
        return 0
    if asked in there:
        return there.index(asked)
    said = "of no type of vertices" if asked is None else f"of vertices of type {asked!r}"
    if types is None:
        raise ModelError(f"{name!r} has rows {said}, and this graph has one type: leave out vertex_type")
    raise ModelError(
        f"{name!r} has rows {said}, and the graph has the types {', '.join(there)}; name one of them: "
        f"LearnedFeatures({module.width}, vertex_type={there[0]!r})"
    )


def may_have_rows(model: torch.nn.Module) -> bool:
    """Return True if a model has a module that may hold learned rows."""
    return any(isinstance(one, LearnedFeatures) or any(True for _ in _tables(one)) for one in model.modules())


PADDED = "has a row without a gradient, padding_idx, which learned rows of vertices do not have; leave padding_idx out"


class VertexNumbers(TorchFunctionMode):
    """Makes `torch.arange(num_vertices)` count the vertices of another graph while a model runs on that one.

    Args:
        counts: the number of vertices of the other graph, by that of the graph that the model was made for. There is one
            for each type of vertices with learned rows.
    """

    def __init__(self, counts: Mapping[int, Any]) -> None:
        super().__init__()
        self._counts = counts

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.arange and self._counts and len(args) <= 2 and not {"start", "step"} & kwargs.keys():
            given: list[Any] = [*args, *(kwargs[name] for name in ("end",) if name in kwargs)]
            *start, end = given
            if type(end) is int and end in self._counts and start in ([], [0]):
                return func(self._counts[end], **{key: value for key, value in kwargs.items() if key != "end"})
        return func(*args, **kwargs)


def rows_for(
    parameters: Mapping[str, Tensor], spec: Spec, features: Tensor, before: Tensor | None = None
) -> dict[str, Tensor]:
    """Return parameters in which learned rows are those of a small graph: random numbers, the same in each call.

    Args:
        parameters: all parameters, by name.
        spec: the traced model.
        features: the features of the graph [num_vertices, width].
        before: the features of another graph whose rows come first, or None for none.
    """
    found = dict(parameters)
    for name, of_type in spec.types_of_rows.items():
        whole, generator = parameters[name], torch.Generator().manual_seed(len(name))
        counts = (0 if one is None else _count(spec, one, of_type) for one in (features, before))
        rows, others = (torch.randn(n, *whole.shape[1:], generator=generator) for n in counts)
        found[name] = torch.cat([others, rows]).to(whole.dtype).requires_grad_(whole.requires_grad)
    return found


def counts_of_rows(spec: Spec, parameters: Mapping[str, Tensor], features: Tensor) -> dict[int, int]:
    """Return the number of vertices of a small graph, by that of the model's own graph, for types with learned rows.

    Args:
        spec: the traced model.
        parameters: its parameters, by name.
        features: the features of the small graph [num_vertices, width].
    """
    return {len(parameters[name]): _count(spec, features, of_type) for name, of_type in spec.types_of_rows.items()}


def _count(spec: Spec, features: Tensor, of_type: str) -> int:
    """Return the number of vertices of a type in a small graph."""
    types = spec.vertex_types
    if types is None:
        return len(features)
    return int((features[:, types.type_column] == types.names.index(of_type)).sum())
