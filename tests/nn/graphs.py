"""Random graphs for tests of layers and tracing."""

from __future__ import annotations

import torch
from torch import Tensor


def random_graph(seed: int, num_vertices: int = 12, num_edges: int = 40) -> Tensor:
    """edge_index int64 [2, num_edges]: self-loops, parallel edges, a hub with half of all edges, two isolated vertices."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, num_vertices - 2, (2, num_edges), generator=generator)
    edge_index[1, : num_edges // 2] = 0
    edge_index[:, -1] = edge_index[:, -2]
    edge_index[:, -3] = 3
    edge_index[:, -4] = torch.tensor([5, 5])
    return edge_index[:, torch.randperm(num_edges, generator=generator)]
