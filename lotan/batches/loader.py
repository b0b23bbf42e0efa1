"""Makes a sampled graph of a batch that the local engine runs a plan on: its columns, its edges and their matrices."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lotan.batches.sampler import Sample
from lotan.engines.local.batch_graph import follows_from_sample, load_batch, only_targets, sampled_edges
from lotan.engines.local.engine import LocalEngine
from lotan.engines.local.loaded_graph import FromGraph, LoadedGraph
from lotan.engines.rows_of_types import RowsOfTypes
from lotan.graph.arrays import GraphArrays, Positions
from lotan.graph.graph import Graph
from lotan.memory.mapped import MappedMemory, rows_at
from lotan.stages.programs import make_program
from lotan.stages.saved_values import Memory
from lotan.stages.sparse_rows import SparseRows
from planner.physical import Plan
from planner.steps.pipe import PipeStep


@dataclass(frozen=True)
class Elsewhere:
    """The rows of a graph's vertices that lie in tensors of their own, such as those of a buffer of partitions."""

    places: Tensor  # the row of each vertex there, and in learned rows, int64 [vertices]
    columns: Mapping[str, Tensor]  # static columns by name, [rows, width] each


class BatchLoader:
    """Loads samples of one graph for one plan.

    Args:
        graph: The graph.
        plan: The plan of a batch. Columns that it computes once are computed here, on the whole graph.
        chunk_rows: The number of vertices that a stage processes at a time; None: a number that suits the batch.
        elsewhere: The columns that are not the graph's own, and the places of learned rows; None: all are in its order.
        in_files: True if columns that are computed once lie in files, as features may. Few of their pages are in memory.
    """

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        chunk_rows: int | None = None,
        elsewhere: Elsewhere | None = None,
        in_files: bool = False,
    ) -> None:
        self._arrays, self._plan, self._chunk_rows, self._elsewhere = graph.arrays(), plan, chunk_rows, elsewhere
        self._of_types = RowsOfTypes(graph)
        memory = Memory()
        self._programs = {stage.name: make_program(stage, plan.source_gradients, memory) for stage in plan.stages}
        there: Collection[str] = () if elsewhere is None else elsewhere.columns
        every = _static(graph, plan, there, in_files)
        static = {name: column for name, column in every.items() if not follows_from_sample(name)}
        sparse = () if in_files else self._read_as_sparse()  # the sparse rows of all vertices would be in memory
        self._sparse = {name: SparseRows(static[name]) for name in sparse if name in static}
        self._static = {name: column for name, column in static.items() if name not in self._sparse}

    def load(self, sample: Sample) -> LoadedGraph:
        """Return a sample as a graph in memory, with the matrices that the plan's sums along edges need."""
        rows, counts = torch.from_numpy(sample.rows), sample.counts
        static = {name: _chosen(column, sample.rows) for name, column in self._static.items() if name != "split"}
        # the plan names the column, but no step reads its numbers
        static |= {name: torch.zeros(1).expand(len(rows), rest.shape[1]) for name, rest in self._sparse.items()}
        static["split"] = only_targets(len(sample.rows), counts[0])
        keys = torch.from_numpy(self._arrays.keys).index_select(0, rows)
        sparse = {name: whole.chosen(rows) for name, whole in self._sparse.items()}
        if self._elsewhere is not None:
            rows = self._elsewhere.places.index_select(0, rows)
            static |= {name: column.index_select(0, rows) for name, column in self._elsewhere.columns.items()}
        given = FromGraph(counts, rows, keys, static, self._programs, sparse, self._of_types)
        return load_batch(self._sampled(sample), self._plan, self._chunk_rows, given)

    def _read_as_sparse(self) -> set[str]:
        """Return the names of the columns that stages read as sparse rows, and nothing reads in another form."""
        stages = [(one, self._programs[stage.name].flat) for stage in self._plan.stages for one in stage.inputs]
        sparse = {one.column for one, flat in stages if one.sparse and flat}
        dense = {one.column for one, flat in stages if not (one.sparse and flat)}
        steps = (step for step in (*self._plan.prepare, *self._plan.train) if not isinstance(step, PipeStep))
        return sparse - dense - {name for step in steps for name in step.reads}

    def _sampled(self, sample: Sample) -> GraphArrays:
        """Return the edges of a sample."""
        arrays = self._arrays
        return sampled_edges(
            sample.rows,
            sample.src,
            sample.dst,
            weight=None if arrays.weight is None else rows_at(arrays.weight, sample.edges),
            edge_attr=None if arrays.edge_attr is None else rows_at(arrays.edge_attr, sample.edges),
            edge_type=None if arrays.edge_type is None else rows_at(arrays.edge_type, sample.edges),
        )


def _chosen(column: Tensor, rows: Positions) -> Tensor:
    """Return some rows of a column, which may lie in a file."""
    if MappedMemory().holds(column):
        return torch.from_numpy(rows_at(column.numpy(), rows))
    return column.index_select(0, torch.from_numpy(rows))


def _static(graph: Graph, plan: Plan, there: Collection[str], in_files: bool) -> Mapping[str, Tensor]:
    """Return the static columns that training reads, of the whole graph and in its own order, but those in `there`."""
    engine = LocalEngine(on_disk=in_files)
    try:
        engine.load(graph, plan.only_preparing)
        read = (plan.lasting | {"label"}) - set(there)
        return {name: engine.static(name) for name in sorted(read)}
    finally:
        engine.close()
