"""The rows of a parameter that has one for each vertex of a type, found by the vertices of the whole graph."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lotan.errors import EngineError

if TYPE_CHECKING:
    from lotan.graph.graph import Graph


class RowsOfTypes:
    """The rows of vertices among those of their type, in the order of ids. Those of a type are found at its first use.

    Args:
        graph: The whole graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._types, self._ids = graph.given_types, graph.ids
        self._found: dict[int, Tensor] = {}
        self._lock = threading.Lock()

    def __getitem__(self, number: int) -> Tensor:
        """Return the row of each vertex in a parameter of a type, or -1 for a vertex of another type. int64 [vertices]."""
        with self._lock:
            if number not in self._found:
                if self._types is None:
                    raise EngineError("the plan reads learned rows of a type of vertices, and the graph has one type")
                places, _ = self._types.rows_of_type(number, self._ids)
                rows = np.full(len(self._ids), -1, dtype=np.int64)
                rows[places] = np.arange(len(places))
                self._found[number] = torch.from_numpy(rows)
            return self._found[number]
