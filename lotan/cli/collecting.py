"""How often Python looks for cycles of garbage while a command starts."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

RARELY = 200_000
"""Objects made before a look for garbage. Loading torch makes a million that all stay: a tenth of a start went into looks."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Have Python collect garbage seldom within the block, while modules are loaded and plans made: see benchmarks/start.py."""
    before = gc.get_threshold()
    gc.set_threshold(RARELY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
