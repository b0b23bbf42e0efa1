"""Random numbers of Python and NumPy are refused where a function draws them, and allowed to modules that may."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from lotan.errors import ModelError
from lotan.tracing.foreign_draws import no_foreign_draws


class Sampler(torch.nn.Module):
    """Draws from both generators, as a layer that samples neighbours does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * random.random() * np.random.rand()


def of_both() -> tuple[float, float]:
    return random.getstate()[1][-1], float(np.random.get_state()[2])


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_a_function_that_draws_is_refused(draw: Callable[[], float]) -> None:
    with pytest.raises(ModelError, match="forward draws random numbers"), no_foreign_draws("forward", draw):
        draw()


def test_a_draw_of_another_thread_is_none_of_the_function() -> None:
    with no_foreign_draws("forward", lambda: None):
        random.random()  # once, and not when the function is called again


def test_a_module_that_may_draw_leaves_the_generators_as_they_were() -> None:
    sampler, x = Sampler(), torch.ones(3)
    before = of_both()
    with no_foreign_draws("forward", lambda: sampler(x), [sampler]):
        sampler(x)
        assert of_both() == before
    sampler(x)  # after the block, it draws as ever
    assert of_both() != before
