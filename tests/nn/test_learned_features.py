"""Learned rows as a module: their shapes, their state_dict, and bad arguments."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

import lotan
from lotan.errors import ConfigurationError, ModelError


def filled() -> lotan.nn.LearnedFeatures:
    rows = lotan.nn.LearnedFeatures(3)
    rows.set_rows(np.array([2, 5, 9]), torch.arange(9.0).view(3, 3))
    return rows


def test_rows_of_all_vertices_and_of_some() -> None:
    rows = filled()
    assert torch.equal(rows(object()), torch.arange(9.0).view(3, 3))
    assert torch.equal(rows(torch.tensor([2, 0])), torch.tensor([[6.0, 7.0, 8.0], [0.0, 1.0, 2.0]]))
    assert repr(rows) == "LearnedFeatures(3, rows=3)"


def test_a_state_dict_makes_room_for_its_rows() -> None:
    fresh = torch.nn.Sequential(lotan.nn.LearnedFeatures(3))
    fresh.load_state_dict(torch.nn.Sequential(filled()).state_dict())
    assert torch.equal(fresh[0].weight, filled().weight)
    with pytest.raises(RuntimeError, match="size mismatch"):
        lotan.nn.LearnedFeatures(4).load_state_dict(filled().state_dict())


def test_frozen_rows_stay_frozen() -> None:
    rows = lotan.nn.LearnedFeatures(3).requires_grad_(False)
    rows.set_rows(np.array([0]), torch.zeros(1, 3))
    assert not deepcopy(rows).weight.requires_grad


def test_rows_that_nobody_has_drawn() -> None:
    with pytest.raises(ModelError, match=r"no rows yet.*lotan\.Trainer"):
        lotan.nn.LearnedFeatures(3)(None)


@pytest.mark.parametrize("arguments", [{"width": 0}, {"width": -1}, {"width": 1.5}, {"width": 2, "std": -1.0}])
def test_bad_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="LearnedFeatures got"):
        lotan.nn.LearnedFeatures(**arguments)
