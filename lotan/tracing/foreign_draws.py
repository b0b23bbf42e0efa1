"""Random numbers that a user's function draws from Python's `random` or from NumPy, which a trace cannot see."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from lotan.errors import ModelError


@contextmanager
def no_foreign_draws(what: str, run: Callable[[], Any], samples: Iterable[torch.nn.Module] = ()) -> Iterator[None]:
    """Refuse a function that draws from the global generators of Python or NumPy. The block calls it once.

    Comparing results finds such numbers only if they change a result. Another thread may draw at the same time, so the
    function is called twice more before it is refused.

    Args:
        what: The function, in words.
        run: Calls the function.
        samples: Modules that it calls, and that draw for something that no trace contains. They may draw.

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
    with ExitStack() as hooks:
        for module in samples:
            _keep_generators(module, hooks)
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


def _keep_generators(module: torch.nn.Module, hooks: ExitStack) -> None:
    """Have the global generators as they were before, after each call of a module."""
    before: list[tuple[Any, Any]] = []

    def keep(module: torch.nn.Module, arguments: Any) -> None:
        before.append((random.getstate(), np.random.get_state()))

    def put_back(module: torch.nn.Module, arguments: Any, output: Any) -> None:
        of_python, of_numpy = before.pop()
        random.setstate(of_python)
        np.random.set_state(of_numpy)

    hooks.callback(module.register_forward_pre_hook(keep).remove)
    hooks.callback(module.register_forward_hook(put_back).remove)


def _generators() -> tuple[Any, str]:
    """Return the states of the global generators of Python and of NumPy."""
    return random.getstate(), str(np.random.get_state())
