"""The order of vertices by level. Vertices that a pruned step needs come first, so that it reads the first rows of a column.

The level of a vertex is the smallest number of hops along edges from it to a target: see `planner.rules.prune_vertices`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from lotan.graph.arrays import EdgeColumns, GraphArrays, sort_edges
from lotan.graph.edges_in_files import sort_in_files
from lotan.memory.mapped import MappedMemory
from planner.spec import SPLITS, Targets


@dataclass(frozen=True)
class LevelOrder:
    """An order of a graph's vertices."""

    rows: NDArray[np.int64]  # the graph's rows [vertices], by level, then in the graph's own order
    counts: tuple[int, ...]  # the number of vertices within each level, from level 0 to the deepest

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """The position in this order of each of the graph's rows. [vertices]."""
        places = np.empty_like(self.rows)
        places[self.rows] = np.arange(len(self.rows))
        return places

    def placed(self, arrays: GraphArrays, mapped: MappedMemory | None = None) -> GraphArrays:
        """Return the graph's arrays in this order.

        Args:
            arrays: The graph's arrays.
            mapped: The files for features and edges; None: they lie in memory.
        """
        if mapped is None:  # torch's memory is aligned
            edges = sort_edges(self._with_places(arrays.edges), len(self.rows), alike_in_order=True)
            features = torch.from_numpy(arrays.features).index_select(0, torch.from_numpy(self.rows)).numpy()
        else:
            edges = sort_in_files(lambda: map(self._with_places, arrays.edges.parts()), len(self.rows), mapped)
            features = mapped.stored(arrays.features, self.rows)
        return GraphArrays(
            ids=arrays.ids[self.rows],
            features=features,
            label=arrays.label[self.rows],
            split=arrays.split[self.rows],
            vertex_weight=None if arrays.vertex_weight is None else arrays.vertex_weight[self.rows],
            src=edges.src,
            dst=edges.dst,
            weight=edges.weight,
            edge_attr=edges.edge_attr,
            edge_type=edges.edge_type,
            flat=arrays.flat,
        )

    def _with_places(self, edges: EdgeColumns) -> EdgeColumns:
        return replace(edges, src=self.places[edges.src], dst=self.places[edges.dst])


def order_by_level(arrays: GraphArrays, deepest: int | None, targets: Targets = "train") -> LevelOrder | None:
    """Return the order for a plan with levels down to `deepest`; None if the graph's own order suffices."""
    if deepest is None:
        return None
    level = np.full(len(arrays.ids), deepest + 1)
    level[arrays.split >= 0 if targets == "split" else arrays.split == SPLITS.index("train")] = 0
    for hops in range(1, deepest + 1):
        for edges in arrays.edges.parts():  # what one part changes is for the next hop
            sources = edges.src[level[edges.dst] == hops - 1]
            level[sources[level[sources] > hops]] = hops
    counts = np.bincount(level, minlength=deepest + 1).cumsum()[: deepest + 1]
    return LevelOrder(np.argsort(level, kind="stable"), tuple(counts.tolist()))
