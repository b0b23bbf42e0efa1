"""Random numbers that a user's function draws from Python's `random` or from NumPy, which a trace cannot see."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lotan.errors import ModelError


@contextmanager
def no_foreign_draws(what: str, run: Callable[[], Any]) -> Iterator[None]:
    """Refuse a function that draws from the global generators of Python or NumPy. The block calls it once.

    Comparing results finds such numbers only if they change a result. Another thread may draw at the same time, so the
    function is called twice more before it is refused.

    Args:
        what: The function, in words.
        run: Calls the function.

    Raises:
        ModelError: The function draws such numbers.

    Example:
        >>> with no_foreign_draws("loss", random.random):
        ...     number = random.random()
        Traceback (most recent call last):
        ...
        lotan.errors.ModelError: loss draws random numbers from Python's `random` or from NumPy; it runs once, while it is \
traced, so each epoch would have the same ones; draw them by torch for each row, as torch.rand_like and dropout do
    """
    before = _generators()
    yield
    for _ in range(2):
        if before == _generators():
            return
        before = _generators()
        run()
    if before != _generators():
        raise ModelError(
            f"{what} draws random numbers from Python's `random` or from NumPy; it runs once, while it is traced, so each epoch "
            "would have the same ones; draw them by torch for each row, as torch.rand_like and dropout do"
        )


def _generators() -> tuple[Any, str]:
    """Return the states of the global generators of Python and of NumPy."""
    return random.getstate(), str(np.random.get_state())
