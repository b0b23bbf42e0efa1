"""Learned rows: each vertex of one graph has a row of numbers that is trained with the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from lotan.arguments import require_count, require_kind, require_number
from lotan.errors import ModelError


class LearnedFeatures(torch.nn.Module):
    """A learned row for each vertex of the graph, beside its features or in place of them.

    The rows belong to the vertices of one graph. A `lotan.Trainer` draws them when it first plans the model: normal
    numbers, which depend on the Trainer's seed, the name of the parameter and the vertex's id alone. A model that has
    rows already goes on from them.

    Args:
        width: the numbers in a row.
        std: the standard deviation of the first numbers; None for width^-1/2, so that a row has a length of about 1
            (default: None).
        vertex_type: in a graph of several types of vertices, the type of those that have a row (default: None).

    Shapes:
        weight: the rows [num_vertices, width], in ascending order of the vertices' ids. Before the rows are drawn it has
            no rows. With `vertex_type`, num_vertices are those of that type.
        output: the rows of all vertices [num_vertices, width]; of n_id int64 [rows], those rows [rows, width].

    Raises:
        ConfigurationError: the width is not a positive whole number, std is no number of at least 0, or vertex_type is no
            text.

    Example:
        >>> import lotan
        >>> class Embedded(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.rows = LearnedFeatures(16)
        ...         self.conv = lotan.nn.SAGEConv(16, 10)
        ...     def forward(self, x, graph):
        ...         return self.conv(self.rows(graph), graph)
        >>> model = Embedded()
        >>> _ = lotan.Trainer(model, lotan.Graph.read("digits"), epochs=1, progress=False).fit()
        >>> model.rows.weight.shape
        torch.Size([1797, 16])
    """

    UNTRACED: ClassVar = ("ids", "std")  # fields that change nothing in a trace

    def __init__(self, width: int, std: float | None = None, vertex_type: str | None = None) -> None:
        super().__init__()
        self.width = require_count("LearnedFeatures", "width", width)
        if vertex_type is not None:
            require_kind("LearnedFeatures", "vertex_type", vertex_type, str, "the name of a type of vertices")
        if std is not None:
            require_number("LearnedFeatures", "std", std, 0.0)
        self.std = self.width**-0.5 if std is None else float(std)
        self.vertex_type = vertex_type
        self.ids: np.ndarray[Any, Any] | None = None  # of the rows, ascending; None: not known
        self.weight = torch.nn.Parameter(torch.empty(0, self.width))

    @property
    def has_rows(self) -> bool:
        """True if the rows were drawn or loaded."""
        return len(self.weight) > 0

    def set_rows(self, ids: np.ndarray[Any, Any], rows: Tensor) -> None:
        """Take rows for the vertices of a graph. Optimizers that were made before know nothing of them.

        Args:
            ids: the ids of the vertices, ascending [num_vertices].
            rows: the rows, float32 [num_vertices, width].
        """
        self.ids = ids
        self.weight = torch.nn.Parameter(rows, requires_grad=self.weight.requires_grad)

    def forward(self, graph: object = None) -> Tensor:
        """Return the rows of all vertices, or those of n_id if it is given in place of the graph.

        Raises:
            ModelError: there are no rows yet.
        """
        if type(self.weight.shape[0]) is int and not self.has_rows:  # while a model is traced, the number is a symbol
            raise ModelError(
                "LearnedFeatures has no rows yet, because it knows no vertices; plan or train the model with a lotan.Trainer"
            )
        if isinstance(graph, Tensor) and graph.dim() == 1 and graph.dtype in (torch.int32, torch.int64):
            return torch.nn.functional.embedding(graph, self.weight)
        return self.weight

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        """Make room for the rows of a state_dict, whose number is not known before."""
        rows = state_dict.get(f"{prefix}weight")
        if not self.has_rows and isinstance(rows, Tensor) and rows.shape[1:] == self.weight.shape[1:]:
            self.weight = torch.nn.Parameter(
                torch.empty_like(rows, dtype=torch.float32), requires_grad=self.weight.requires_grad
            )
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """Return the width, the type of vertices, and the number of rows, as far as they are there."""
        of_type = "" if self.vertex_type is None else f", vertex_type={self.vertex_type!r}"
        return f"{self.width}{of_type}{f', rows={len(self.weight)}' * self.has_rows}"
