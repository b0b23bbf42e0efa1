"""The data on which a stage runs, and the values that its forward runs keep."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from lotan.stages.sparse_rows import SparseRows
from lotan.stages.spill_file import SpillFile
from planner.spec import EdgeSet

Parameters = Mapping[str, Tensor]

Places = Mapping[str, Tensor]
"""Memory to write results to, by name. A result without a place gets memory of its own."""

NOWHERE: Places = {}


@dataclass(eq=False)
class EdgeBlock:
    """The in-edges of a chunk's rows, sorted by destination row, then by source vertex.

    Values that depend on the topology alone are computed once, on first use.
    """

    indptr: Tensor  # int64 [rows + 1]
    positions: Tensor  # int64 [edges], positions among the chunk's source rows
    weight: Tensor | None = None  # float32 [edges]; None: each weight is 1
    keys: Tensor | None = None  # int64 [edges], row keys for random numbers, if a stage draws any on edges
    # attributes, float32 [edges, width], and types, int64 [edges], that a stage reads, by `planner.edge_columns`' names
    columns: dict[str, Tensor] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of destination rows."""
        return self.indptr.numel() - 1

    @property
    def edges(self) -> int:
        """The number of edges."""
        return self.positions.numel()

    @cached_property
    def in_degree(self) -> Tensor:
        """The number of in-edges of each row, at least 1, float32 [rows]."""
        return self.indptr.diff().clamp_(min=1).to(torch.float32)

    @cached_property
    def destinations(self) -> Tensor:
        """The destination row of each edge, int64 [edges]."""
        return torch.repeat_interleave(torch.arange(self.rows), self.indptr.diff(), output_size=self.edges)

    @cached_property
    def by_destination(self) -> Tensor:
        """A sparse matrix of ones [rows, edges], whose product with edge rows sums them for each destination."""
        return sparse_rows(self.indptr, torch.arange(self.edges), self.edges)

    @cached_property
    def _source_order(self) -> Tensor:
        return torch.argsort(self.positions, stable=True)

    def by_source(self, sources: int) -> Tensor:
        """A sparse matrix of ones [sources, edges], whose product with edge rows sums them for each source row."""
        if self._by_source is None or self._by_source.shape[0] != sources:
            counts = torch.bincount(self.positions, minlength=sources)
            self._by_source = sparse_rows(prefix_sum(counts), self._source_order, self.edges)
        return self._by_source

    _by_source: Tensor | None = field(default=None, init=False, repr=False)


def prefix_sum(counts: Tensor) -> Tensor:
    """Return row pointers, int64 [rows + 1], for row lengths [rows]."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def sparse_rows(indptr: Tensor, columns: Tensor, width: int, values: Tensor | None = None) -> Tensor:
    """Return a CSR matrix [rows, width] of `values`, or of ones if they are None."""
    values = torch.ones(columns.numel()) if values is None else values
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(indptr, columns, values, (indptr.numel() - 1, width), check_invariants=False)


def padded(rows: Tensor, count: int) -> Tensor:
    """Return `rows` with rows of zeros after them, up to `count` rows in all."""
    return torch.cat([rows, rows.new_zeros(count - len(rows), *rows.shape[1:])]) if len(rows) < count else rows


@dataclass(eq=False)
class Chunk:
    """A contiguous run of one partition's vertices with the values that a stage reads. It may have no rows."""

    keys: Tensor  # int64 [rows], row keys of the vertices
    values: Mapping[str, Tensor]  # by StageInput.value: [rows or sources, *shape]
    edges: Mapping[EdgeSet, EdgeBlock] = field(default_factory=dict)
    label: Tensor | None = None  # int64 [rows], or float32 [rows, outputs]
    split: Tensor | None = None  # int8 [rows], position in planner.spec.SPLITS, -1 for none
    vertex_weight: Tensor | None = None  # float32 [rows, 1], for a loss that weighs vertices
    # sparse inputs, as flat stages read them, beside or instead of those in `values`
    sparse: Mapping[str, SparseRows] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of vertices."""
        return self.keys.numel()


@dataclass(frozen=True)
class Terms:
    """The treatment of a stage's kept runs when memory is full."""

    spills: bool  # True if reading a run from a file costs less than computing it again
    worth: float  # seconds saved per byte in memory: a run makes room for one that is worth more


class Saved:
    """The values that a forward run keeps for its backward, which can be used once."""

    @property
    def bytes(self) -> int:
        """The bytes of memory that the values take, without those of an autograd graph."""
        return 0

    def stow(self, file: SpillFile) -> bool:
        """Move the values to a file. False means that this is not possible or that there is no room; then call `drop`."""
        return False

    def fetch(self, file: SpillFile) -> None:
        """Read the values back, if they were moved."""

    def drop(self, file: SpillFile) -> None:
        """Free the values' room in the file."""


@dataclass(frozen=True, eq=False)
class SavedTogether(Saved):
    """The values that several forward runs kept for one backward: the pieces of a chunk, or the models of a batch."""

    parts: Sequence[Saved | None]

    @property
    def bytes(self) -> int:
        """The bytes of memory that all parts take, without those of autograd graphs."""
        return sum(part.bytes for part in self._held)

    @property
    def _held(self) -> list[Saved]:
        return [part for part in self.parts if part is not None]

    def stow(self, file: SpillFile) -> bool:
        """Move all values to a file. False means that some could not be moved."""
        return all(part.stow(file) for part in self._held)

    def fetch(self, file: SpillFile) -> None:
        """Read all values back."""
        for part in self._held:
            part.fetch(file)

    def drop(self, file: SpillFile) -> None:
        """Free the room of the values that were moved."""
        for part in self._held:
            part.drop(file)
