"""The draws of a batch: the order of the examples, and the in-edges of a vertex. Tasks of Spark make them too, without torch."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lotan.stages.draws import Randomness, random_words, words_from

Positions = NDArray[np.int64]
States = Randomness | NDArray[np.uint64]

ORDER = "order of examples"
"""The name of the draws that put the examples of an epoch in order."""

DRAWS, OUT_DRAWS = "in-edges of a batch", "out-edges of a batch"
"""The names of the draws that choose the edges of a vertex."""

RELATION_KEY = 0x1E3779B97F4A7C15
"""The difference between the keys by which a vertex draws in-edges of one relation and of the next: an odd number."""

BLOCK_ROWS = 2048
"""The vertices whose edges are drawn at a time: their numbers stay in a core's cache."""


def order_words(keys: Positions, of: Randomness) -> NDArray[np.uint32]:
    """Return the numbers by which the examples of an epoch are in order, the first column before the second. [examples, 2].

    Args:
        keys: The row keys of the examples. [examples]
        of: The seed and the epoch.
    """
    return random_words(of, ORDER, keys, 2)


def state_of(batch: Randomness, name: str = DRAWS) -> int:
    """Return the state from which the vertices of a batch draw their edges; `name` is that of the draws."""
    return batch.operator(name)


def keys_by_relation(keys: Positions, relations: Positions) -> Positions:
    """Return the keys by which vertices draw in-edges of one relation each.

    Args:
        keys: The row keys of the vertices. [groups]
        relations: The numbers of the relations. [groups]
    """
    return keys + relations * RELATION_KEY


def choose(degrees: Positions, count: int, keys: Positions, of: States, name: str = DRAWS) -> Positions:
    """Choose `count` of the first `degree` numbers for each vertex, without replacement. All choices are equally likely.

    The draws of a vertex depend on its row key, the seed, the epoch and the batch alone. Source: R. Floyd, in Bentley and
    Floyd, A Sample of Brilliance (1987).

    >>> choose(np.array([3, 5]), 2, np.array([10, 11]), Randomness(seed=0, epoch=1)).shape
    (2, 2)

    Args:
        degrees: The numbers to choose from, each more than `count`. [vertices]
        count: How many to choose.
        keys: The row keys of the vertices. [vertices]
        of: The seed, the epoch and the batch; or the state of each vertex's draws, of `state_of`. uint64 [vertices]
        name: The name of the draws, unless their states are given.

    Returns:
        The numbers, ascending for each vertex. int64 [vertices, count].
    """
    found = np.empty((len(degrees), count), dtype=np.int64)
    states = np.broadcast_to(np.uint64(state_of(of, name)) if isinstance(of, Randomness) else of, len(degrees))
    for start, end in pairwise([*range(0, len(degrees), BLOCK_ROWS), len(degrees)]):
        words = words_from(states[start:end], keys[start:end], count)
        # [count, block]: a draw of all vertices is one run of memory
        words = np.ascontiguousarray(words.T, dtype=np.uint64)
        last = degrees[start:end] - count
        chosen = np.empty((count, end - start), dtype=np.int64)
        for place in range(count):  # from the numbers 0 to `last` choose one, or else `last` itself
            drawn = ((words[place] * (last + 1).astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
            taken = (chosen[:place] == drawn).any(axis=0)
            chosen[place] = np.where(taken, last, drawn)
            last += 1
        found[start:end] = np.sort(chosen.T, axis=1)
    return found
