"""A small run, for all that is told of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import lotan
from lotan.results.run import Run

EPOCHS = 3


def trainer(dropout: float = 0.5, **options: Any) -> lotan.Trainer:
    generator = np.random.default_rng(0)
    graph = lotan.Graph.from_arrays(
        generator.normal(size=(30, 4)),
        *generator.integers(0, 30, size=(2, 90)),
        label=generator.integers(0, 3, size=30),
        split=generator.integers(0, 3, size=30),
    )
    torch.manual_seed(0)
    model = lotan.nn.GCN(in_channels=4, hidden_channels=8, num_layers=2, out_channels=3, dropout=dropout)
    return lotan.Trainer(model, graph, **{"engine": "local", "progress": False, "epochs": EPOCHS, **options})


def train(**options: Any) -> Run:
    return trainer(**options).fit()
