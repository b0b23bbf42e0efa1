"""A graph on which a model trains in milliseconds, and a grid for it."""

from __future__ import annotations

import numpy as np

import lotan


def small_graph() -> lotan.Graph:
    generator = np.random.default_rng(0)
    return lotan.Graph.from_arrays(
        generator.normal(size=(60, 8)).astype(np.float32),
        generator.integers(0, 60, size=240),
        generator.integers(0, 60, size=240),
        label=generator.integers(0, 3, size=60),
        split=generator.integers(0, 3, size=60),
    )


def write_small_graph(folder) -> str:
    small_graph().save(folder)
    return str(folder)


MIXED = {
    "seed": 3,
    "epochs": 8,
    "patience": 2,
    "model": {"kind": ["gcn", "gat"], "hidden": 4, "heads": [1, 2]},
    "optimizer": {"name": ["adam", "sgd"], "lr": 0.05, "momentum": 0.5},
}
"""4 combinations of gcn, half of them twice, and 4 of gat."""
