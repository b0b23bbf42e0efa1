"""How engines cut vertices into the chunks that stages run on, and what workers keep of them: sizes that costs depend on."""

CHUNK_ROWS = 1024
"""Vertices that a stage runs on at a time, unless told otherwise: what it makes of them stays in a core's cache."""

ONE_CHUNK = 8 * CHUNK_ROWS
"""Vertices of which "local" makes one chunk: up to so many, calling an operator costs more than a chunk in the cache saves (Cora:
5.0 ms an epoch, not 6.5)."""

MOST_IN_A_GROUP = 8
"""Chunks of "local" whose gradients of parameters are summed together, at the most: a few thousand rows."""

LEAST_GROUPS = 16
"""Of those groups, where there are chunks enough: so that threads can share them."""

SAVED_BYTES = 1 << 30
"""What a worker keeps in memory between forward and backward, unless told otherwise."""
