"""A sampled batch as a graph in memory. This process makes it of the graph's arrays, and a worker of what tasks of Spark send."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lotan.engines.local.loaded_graph import FromGraph, LoadedGraph
from lotan.graph.arrays import Attributes, GraphArrays, Positions, Types, Weights
from planner.physical import Column, Plan
from planner.spec import SPLITS
from planner.steps.propagate import PropagateStep

OF_SAMPLE = ("in_degree",)
"""The static columns that follow from the sampled edges. All others are those of the whole graph: see docs/concepts."""


def follows_from_sample(column: str) -> bool:
    """Return True if a static column follows from the sampled edges.

    >>> follows_from_sample("in_degree@self_loops"), follows_from_sample("gcn_scale@self_loops")
    (True, False)
    """
    return column.partition("@")[0] in OF_SAMPLE


def batch_columns(plan: Plan) -> list[Column]:
    """Return the static columns of vertices that a batch comes with. Others follow from its edges, or are not read."""
    read = plan.lasting | {"label", "split"}
    columns = (*plan.static_columns, *plan.hoisted)
    return [one for one in columns if one.name in read and not follows_from_sample(one.name)]


def sampled_edges(
    rows: Positions,
    src: Positions,
    dst: Positions,
    weight: Weights | None,
    edge_attr: Attributes | None,
    edge_type: Types | None,
) -> GraphArrays:
    """Return the edges of a batch. Columns of its vertices are given apart.

    Args:
        rows: The names of the vertices, in the order of their levels. [vertices]
        src: The places of the edges' sources among the vertices. [edges]
        dst: The places of their destinations, ascending. [edges]
        weight: Their weights, or None. [edges]
        edge_attr: Their attributes, or None. [edges, width]
        edge_type: Their types, or None. [edges]
    """
    count = len(rows)
    return GraphArrays(
        ids=rows,
        features=np.empty((count, 0), dtype=np.float32),
        label=np.full(count, -1),
        split=np.full(count, -1, dtype=np.int8),
        src=src,
        dst=dst,
        weight=weight,
        edge_attr=edge_attr,
        edge_type=edge_type,
    )


def load_batch(edges: GraphArrays, plan: Plan, chunk_rows: int | None, given: FromGraph) -> LoadedGraph:
    """Return a batch in memory, with the matrices that the plan's sums along edges need.

    Args:
        edges: The edges, of `sampled_edges`.
        plan: The plan of a batch.
        chunk_rows: The number of vertices that a stage processes at a time; None: a number that suits the batch.
        given: The columns that come from the whole graph, with `only_targets` for their `split`.
    """
    loaded = LoadedGraph(edges, plan, chunk_rows, given)
    for step in plan.train:
        if isinstance(step, PropagateStep):
            loaded.product(step)
    return loaded


def only_targets(vertices: int, targets: int) -> Tensor:
    """Return the split of a batch's vertices: only its targets are examples. int8 [vertices]."""
    split = torch.full((vertices,), -1, dtype=torch.int8)
    split[:targets] = SPLITS.index("train")
    return split
