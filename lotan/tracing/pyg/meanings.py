"""The meaning of tensors of edges in a trace: which edges an edge_index has, and which of their ends a row of it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from torch import Tensor

from planner.spec import EdgeSet

Meaning = TypeVar("Meaning")


@dataclass(frozen=True, eq=False)
class Index:
    """The meaning of an edge_index, which is an edge set and how often each of its edges counts.

    Attributes:
        edges: the edge set.
        times: how often each edge counts, float32 [num_edges]: 1 for an edge that a mask chose, 0 for one that it left
            out; None if each counts once.
        without_loops: if True, self-loops count as nothing, and all other edges count that `chosen` does not leave out.
        chosen: if self-loops were removed from edges that a mask chose, how often each edge counted before; else None.
        turned: if True, row 0 has the vertices where edges end, and row 1 those where they begin.
    """

    edges: EdgeSet
    times: Tensor | None = None
    without_loops: bool = False
    chosen: Tensor | None = None
    turned: bool = False

    @property
    def starts(self) -> End:
        """Row 0 of the edge_index."""
        return End(self, "destination" if self.turned else "source")

    @property
    def ends(self) -> End:
        """Row 1 of the edge_index."""
        return End(self, "source" if self.turned else "destination")

    def receivers(self, flow: str) -> End:
        """Return the row of the edge_index where messages arrive, for a flow of PyG."""
        return self.ends if flow == "source_to_target" else self.starts

    def same(self, other: Index) -> bool:
        """Return True if another index has the same edges, perhaps turned round."""
        return (self.edges, self.without_loops) == (other.edges, other.without_loops) and self.times is other.times


@dataclass(frozen=True, eq=False)
class End:
    """The meaning of one row of an edge_index, or of a view of it.

    Attributes:
        index: the meaning of the edge_index.
        end: the end of the edges of the index's edge set, whether or not the index is turned round.
    """

    index: Index
    end: Literal["source", "destination"]


class Identities(Generic[Meaning]):
    """A map whose keys are tensors, which are compared by identity. They are kept, so that no identity is used twice."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Tensor, Meaning]] = {}

    def __setitem__(self, tensor: Tensor, meaning: Meaning) -> None:
        self._held[id(tensor)] = tensor, meaning

    def get(self, value: object) -> Meaning | None:
        """Return the meaning of a tensor, or None for any other value."""
        found = self._held.get(id(value))
        return None if found is None else found[1]

    def forget(self, value: object) -> None:
        """Forget a tensor."""
        self._held.pop(id(value), None)

    def __bool__(self) -> bool:
        return bool(self._held)


def with_rows_first(function: Callable[[Tensor], Tensor], x: Tensor, dim: int) -> Tensor:
    """Return what a function of rows makes of a tensor that has its rows in the dimension `dim`, with them there again."""
    return function(x.movedim(dim, 0)).movedim(0, dim) if dim % x.dim() else function(x)


def beside(rows: Tensor, like: Tensor) -> Tensor:
    """Return one number for each row in a shape that broadcasts over `like`, [rows, *shape]."""
    return rows.view(-1, *[1] * (like.dim() - 1))
