"""The parameters of a model that have a row for each vertex: those of LearnedFeatures, and torch.nn.Embedding's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lotan.nn.learned_features import LearnedFeatures
from planner.spec import Spec

OTHER_LOOKUP = (
    "looks up learned rows by something else than the vertices themselves; take the rows of all vertices, in their order, and "
    "let vertices meet along edges, in a lotan.nn.MessagePassing layer"
)


def learned_rows(model: torch.nn.Module, vertices: int | None) -> tuple[str, ...]:
    """Return the names of the parameters that may have a row for each vertex.

    Args:
        model: the model.
        vertices: the number of vertices, or None if it is not known. An embedding of so many rows is taken for learned
            rows.
    """
    found = []
    for name, module in model.named_modules():
        is_one = (
            isinstance(module, torch.nn.Embedding) and module.num_embeddings == vertices and module.max_norm is None
        )
        if isinstance(module, LearnedFeatures) or is_one:
            found.append(f"{name}.weight".lstrip("."))
    named = dict(model.named_parameters())  # a parameter that is shared appears once
    return tuple(name for name in found if name in named)


def may_have_rows(model: torch.nn.Module) -> bool:
    """Return True if a model has a module that may hold learned rows."""
    return any(isinstance(module, LearnedFeatures | torch.nn.Embedding) for module in model.modules())


PADDED = "has a row without a gradient, padding_idx, which learned rows of vertices do not have; leave padding_idx out"


class VertexNumbers(TorchFunctionMode):
    """Makes `torch.arange(num_vertices)` count the vertices of another graph while a model runs on that one.

    Args:
        vertices: the number of vertices that the model was made for; None: nothing is replaced.
        count: the number of vertices of the other graph.
    """

    def __init__(self, vertices: int | None, count: Any) -> None:
        super().__init__()
        self._vertices, self._count = vertices, count

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (
            func is torch.arange
            and self._vertices is not None
            and len(args) <= 2
            and not {"start", "step"} & kwargs.keys()
        ):
            given: list[Any] = [*args, *(kwargs[name] for name in ("end",) if name in kwargs)]
            *start, end = given
            if type(end) is int and end == self._vertices and start in ([], [0]):
                return func(self._count, **{key: value for key, value in kwargs.items() if key != "end"})
        return func(*args, **kwargs)


def rows_for(
    parameters: Mapping[str, Tensor], learned: Iterable[str], count: int, before: int = 0
) -> dict[str, Tensor]:
    """Return parameters in which learned rows are those of a small graph: random numbers, the same in each call.

    Args:
        parameters: all parameters, by name.
        learned: the names of those with a row for each vertex.
        count: the number of vertices of the graph.
        before: the number of vertices of another graph whose rows come first.
    """
    found = dict(parameters)
    for name in learned:
        whole, generator = parameters[name], torch.Generator().manual_seed(len(name))
        rows, others = (torch.randn(n, *whole.shape[1:], generator=generator) for n in (count, before))
        found[name] = torch.cat([others, rows]).to(whole.dtype).requires_grad_(whole.requires_grad)
    return found


def count_of_rows(spec: Spec, parameters: Mapping[str, Tensor]) -> int | None:
    """Return the number of learned rows of a model, one for each vertex of its graph, or None if it has none."""
    return next((len(parameters[name]) for name in spec.learned), None)
