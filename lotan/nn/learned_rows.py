"""A model that is nothing but learned rows: each vertex has a row, and no messages pass. It is for link prediction."""

from __future__ import annotations

import torch
from torch import Tensor

from lotan.nn.learned_features import LearnedFeatures


class LearnedRows(torch.nn.Module):
    """A learned row for each vertex as the whole model: out_v = row_v. Neither features nor edges are read.

    With a decoder of `lotan.LinkPrediction` it is the model of that name: with "distmult", DistMult.

    Args:
        out_channels: the width of a row.
        dropout: the probability with which each number of a row is 0 in a step of training (default: 0.0).

    Shapes:
        output: [num_vertices, out_channels].

    Raises:
        ConfigurationError: the width is not a positive whole number.
    """

    def __init__(self, out_channels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.rows = LearnedFeatures(out_channels)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x: Tensor, graph: object) -> Tensor:
        """Return the rows of all vertices."""
        rows: Tensor = self.dropout(self.rows(graph))
        return rows
