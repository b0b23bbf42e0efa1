"""The data object that a `forward(data)` takes, with the tensors of a graph as attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

ABSENT = ("edge_weight", "edge_attr", "edge_type", "batch")
"""Attributes that are None if a graph lacks them, as those of PyG's data objects are."""


class GraphTensors:
    """The tensors of a graph as attributes, such as `data.x` and `data.edge_index`.

    Args:
        tensors: The tensors by name. `x` has a row for each vertex.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.__dict__.update(tensors)

    x: Any

    @property
    def num_nodes(self) -> Any:
        """The number of vertices."""
        return self.x.shape[0]

    @property
    def num_edges(self) -> Any:
        """The number of edges."""
        return self.edge_index.shape[1]

    @property
    def num_features(self) -> int:
        """The width of the features, which is also called `num_node_features`."""
        return int(self.x.shape[1])

    num_node_features = num_features

    def keys(self) -> Iterable[str]:
        """Return the names of the tensors."""
        return list(vars(self))

    def __contains__(self, name: object) -> bool:
        """Return True if the graph has this tensor."""
        return name in vars(self)

    def __getitem__(self, name: str) -> Any:
        """Return what the attribute of this name is."""
        return getattr(self, name)

    def __getattr__(self, name: str) -> Any:
        """Return None for a column that a graph may lack.

        Raises:
            AttributeError: The name is no column of a graph that a model may read.
        """
        if name not in ABSENT:
            targets = name == "y" or name.endswith("_mask")
            hint = "; return a row for each vertex, for the loss reads labels and splits itself" if targets else ""
            raise AttributeError(f"data has no {name!r} that a model can read; it has {', '.join(vars(self))}{hint}")
