"""The splits that a hash draws for links. Spark's tasks draw them too, without torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lotan.graph.row_keys import edge_keys
from lotan.stages.draws import Randomness, random_words

FRACTIONS = "splits of links"
"""The name of the draws that put links into splits."""


@dataclass(frozen=True)
class DrawnSplits:
    """Draws the splits of links. Links between the same two vertices are in the same split.

    Args:
        shares: The shares of validation and test; the others are of training.
        seed: The seed of the hash.
    """

    shares: tuple[float, float]
    seed: int

    def __call__(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> NDArray[np.int8]:
        """Return the splits of links, as positions in `planner.spec.SPLITS`, by the keys of their ends. int8 [links]."""
        val, test = self.shares
        ends = np.stack([src, dst])
        pairs = edge_keys(ends.min(axis=0), ends.max(axis=0), np.zeros(len(src), dtype=np.int64))
        drawn = random_words(Randomness(self.seed, 0), FRACTIONS, pairs, 1)[:, 0] / 2**32
        return np.select([drawn < val, drawn < val + test], [1, 2], 0).astype(np.int8)
