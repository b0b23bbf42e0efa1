"""The examples of an epoch: the training vertices, in an order of their own in each epoch, cut into batches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lotan.batches.draws import Positions, order_words
from lotan.graph.arrays import GraphArrays
from lotan.graph.labels import has_label
from lotan.stages.draws import Randomness


def examples_of(arrays: GraphArrays) -> Positions:
    """Return the rows of the training vertices that have a label, in the graph's order. [examples]."""
    rows = arrays.rows_of("train")
    found: Positions = rows[has_label(arrays)[rows]]
    return found


def batches_of_epoch(examples: Positions, keys: NDArray[np.int64], batch_size: int, of: Randomness) -> list[Positions]:
    """Return the targets of each batch of an epoch, sorted. The last batch has what is left.

    Args:
        examples: The rows of all examples. [examples]
        keys: The row keys of all vertices. [vertices]
        batch_size: The number of targets of a batch.
        of: The seed and the epoch.
    """
    words = order_words(keys[examples], of)  # [examples, 2]
    order = np.lexsort((examples, words[:, 1], words[:, 0]))
    shuffled = examples[order]
    return [np.sort(shuffled[start : start + batch_size]) for start in range(0, len(shuffled), batch_size)]
