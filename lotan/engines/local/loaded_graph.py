"""A graph in the memory of this process, with the programs of a plan and the matrices that they need."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lotan.engines.local.level_order import order_by_level
from lotan.engines.local.products import Chunks, Product
from lotan.engines.local.topology import Edges, EdgeSets
from lotan.engines.rows_of_types import RowsOfTypes
from lotan.errors import EngineError
from lotan.memory.mapped import MappedMemory
from lotan.stages.chunk import EdgeBlock
from lotan.stages.programs import Program, make_program
from lotan.stages.saved_values import Memory
from lotan.stages.sparse_rows import SparseRows
from planner.chunks import local_chunk_rows
from planner.physical import Column, Plan, SourceGradients, Stage
from planner.spec import EdgeSet
from planner.steps.propagate import PropagateStep

if TYPE_CHECKING:
    from lotan.graph.arrays import GraphArrays

MOST_FREE = 4  # pieces of saved values of one width that are kept for the next run, where columns lie in files
ALIGNMENT = 64  # bytes: a cache line, as in torch's own allocator


@dataclass(frozen=True)
class Collection:
    """The neighbourhoods of all vertices. Nothing is copied, because all sources are here."""

    edges: EdgeSet
    columns: Mapping[str, Tensor]  # by column name, [vertices, *shape]


@dataclass(frozen=True)
class LazySums:
    """The result of a propagate whose rows are computed when they are read."""

    product: Product
    column: Tensor  # [vertices, *shape]

    def rows(self, number: int) -> Tensor:
        """Return the rows of a chunk. [rows, *shape]."""
        summed = self.product(number, self.column.view(self.column.shape[0], -1))
        return summed.view(-1, *self.column.shape[1:])

    def write(self, number: int, out: Tensor) -> None:
        """Write the rows of a chunk. out: [rows, *shape]."""
        self.product.write(number, self.column.view(self.column.shape[0], -1), out.view(len(out), -1))


@dataclass(frozen=True)
class Contributions:
    """The rows that a stage returned for its sources: one per vertex, or one per edge."""

    rows: Tensor
    edges: EdgeSet
    source_gradients: SourceGradients


@dataclass(frozen=True)
class FromGraph:
    """The parts of a sampled graph that come from the whole graph, in the sample's order."""

    counts: tuple[int, ...]  # the number of vertices within each level
    rows: Tensor  # the vertices, as rows of the whole graph, int64 [vertices]
    keys: Tensor  # the row keys of the vertices, int64 [vertices]
    static: Mapping[str, Tensor]  # static columns by name; others follow from the sampled edges
    programs: Mapping[str, Program]  # the programs of the plan, which all samples share
    sparse: Mapping[str, SparseRows]  # static columns that stages read as sparse rows alone
    # the rows of vertices among those of their type, as of `RowsOfTypes`, by the type's number
    of_types: RowsOfTypes | Mapping[int, Tensor] | None = None


class LoadedGraph:
    """A graph in memory, and the programs of a plan over it.

    Args:
        arrays: The arrays of the graph.
        plan: The plan of the programs, with its deepest level.
        chunk_rows: The number of vertices that a stage processes at a time; None: a number that suits the graph.
        given: For a sampled graph, whose vertices are in the order of their levels, its other parts; None: a whole graph.
        mapped: The files for features in the order of levels and for the ends of edges; None: they are in memory.
        of_types: The rows of vertices among those of their type, for learned rows of types; None: a sample brings them.
    """

    def __init__(
        self,
        arrays: GraphArrays,
        plan: Plan,
        chunk_rows: int | None = None,
        given: FromGraph | None = None,
        mapped: MappedMemory | None = None,
        of_types: RowsOfTypes | None = None,
    ) -> None:
        self.order = order_by_level(arrays, plan.levels, plan.targets) if given is None else None
        placed = arrays if self.order is None else self.order.placed(arrays, mapped)
        counts = given.counts if given is not None else () if self.order is None else self.order.counts
        data = {"edge_attr": placed.edge_attr, "edge_type": placed.edge_type}
        columns = {name: torch.from_numpy(column) for name, column in data.items() if column is not None}
        self.chunks, *self._levels = (
            Chunks(count, chunk_rows or local_chunk_rows(count)) for count in (len(arrays.ids), *counts)
        )
        self.ids, self.sampled = arrays.ids, given is not None
        self._most_free = None if mapped is None else MOST_FREE
        # the vertices as rows of the whole graph, int64 [vertices]; None: they are in its order
        self.rows_of_graph = None if self.order is None else torch.from_numpy(self.order.rows)
        self._of_types: RowsOfTypes | Mapping[int, Tensor] | None = of_types
        if given is not None:
            self.rows_of_graph, self._of_types = given.rows, given.of_types
        self._places: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        ends = placed.src, placed.dst, placed.weight
        edges = Edges(len(arrays.ids), *ends, data=columns, rows=self.rows_of_graph, mapped=mapped)
        self.sets = EdgeSets(edges, counts, mapped)
        self.source_gradients = plan.source_gradients
        self.programs: Mapping[str, Program] = {}
        self.static: dict[str, Tensor] = {} if given is None else dict(given.static)
        if given is None:
            self.keys = torch.from_numpy(arrays.keys if self.order is None else arrays.keys[self.order.rows])
            self.compile(plan)
        else:
            self.keys, self.programs = given.keys, given.programs
        missing = (column.name for column in plan.static_columns if column.name not in self.static)
        self.static |= {name: self._column(name, placed) for name in missing}
        self._given_sparse = {} if given is None else given.sparse
        self._sparse: dict[tuple[str, int, int], SparseRows] = {}
        self._products: dict[tuple[EdgeSet, bool, bool, int | None, int | None], Product] = {}

    def compile(self, plan: Plan) -> None:
        """Compile the plan's stages to programs, in place of any others."""
        memory = Memory(self._most_free)
        self.programs = {stage.name: make_program(stage, plan.source_gradients, memory) for stage in plan.stages}

    def chunks_within(self, level: int | None) -> Chunks:
        """Return the chunks of the rows within a level; None: all rows."""
        return self.chunks if level is None else self._levels[level]

    def rows(self, column: Column) -> int:
        """Return the number of rows of a column of vertices or edges."""
        if column.edges is not None:
            return self.sets.within(column.edges, column.within).block.edges
        return self.chunks_within(column.within).rows

    def rows_of_type(self, number: int, count: int) -> tuple[Tensor, Tensor]:
        """Return where vertices of a type are among the first rows, and their rows among those of the type. int64 [found] each.

        Args:
            number: The number of the type.
            count: The number of first rows.
        """
        if (number, count) not in self._places:
            if self._of_types is None:
                raise EngineError("the plan reads learned rows of a type of vertices, and the graph brings none")
            whole = self._of_types[number]
            rows = whole[:count] if self.rows_of_graph is None else whole[self.rows_of_graph[:count]]
            at = (rows >= 0).nonzero().view(-1)
            self._places[number, count] = at, rows[at]
        return self._places[number, count]

    def product(self, step: PropagateStep) -> Product:
        """Return the matrix of a propagate, in chunks. It is made at its first use."""
        key = step.edges, step.weighted, step.reverse, step.within, step.output.within
        if key not in self._products:
            # forward, rows within the level are the first of all; in reverse, each row has fewer entries
            edges = self.sets.within(step.edges, step.within if step.reverse else None)
            matrix, weighted = edges.matrix(step.weighted, step.reverse), step.weighted and edges.weight is not None
            self._products[key] = Product(matrix, weighted, self.chunks_within(step.output.within))
        return self._products[key]

    def sparse(self, name: str, rows: slice) -> SparseRows:
        """Return the non-zero numbers of some rows of a static column. They are found at their first use."""
        key = name, rows.start, rows.stop
        if key not in self._sparse and name in self._given_sparse:
            self._sparse[key] = self._given_sparse[name].chosen(torch.arange(rows.start, rows.stop))
        elif key not in self._sparse:
            self._sparse[key] = SparseRows(self.static[name][rows])
        return self._sparse[key]

    def _column(self, name: str, arrays: GraphArrays) -> Tensor:
        match name.split("@"):
            case ["features" | "label" | "split"]:
                return _aligned(getattr(arrays, name))
            case ["vertex_weight"] if arrays.vertex_weight is not None:
                return _aligned(arrays.vertex_weight[:, np.newaxis])
            case ["in_degree", *edges]:
                return self.sets[edges[0] if edges else "graph"].in_degree()
            case ["gcn_scale", edges]:
                return self.sets[edges].gcn_scale()
        raise EngineError(f"the plan reads the static column {name!r}, which no graph has")

    def block(self, stage: Stage, name: EdgeSet, level: int | None) -> EdgeBlock:
        """Return the in-edges of the vertices within a level, with what the stage reads of each edge.

        These are columns of edges, and row keys if the stage draws random numbers on edges.
        """
        edges = self.sets.within(name, level)
        found = edges.block_with(stage.edge_columns(name))
        return edges.keyed_block(self.keys.numpy()) if stage.draws_on(name) else found


def _aligned(array: np.ndarray) -> Tensor:
    """Return the array as a tensor, or a copy if it is not aligned: alignment can change the last bit of a matrix product."""
    if array.ctypes.data % ALIGNMENT:
        return torch.tensor(array)
    with warnings.catch_warnings():
        # no stage writes to its inputs
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
