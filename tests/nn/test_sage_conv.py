from __future__ import annotations

import pytest

from lotan.errors import ConfigurationError
from lotan.nn import SAGEConv
from tests.nn.parity import WIDTH, assert_parity, gradcheck, pyg, refuses

OPTIONS = [
    *({"aggr": aggr} for aggr in ("mean", "max", "min", "sum", "add")),
    {"normalize": True},
    {"root_weight": False},
    {"project": True},
    {"bias": False},
    {"aggr": "max", "normalize": True, "project": True, "bias": False, "root_weight": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_pyg(options: dict) -> None:
    assert_parity(lambda: SAGEConv(WIDTH, 4, **options), lambda: pyg.SAGEConv(WIDTH, 4, **options))


@pytest.mark.parametrize("options", OPTIONS[:3] + OPTIONS[5:8], ids=str)
def test_gradients_equal_finite_differences(options: dict) -> None:
    gradcheck(SAGEConv(WIDTH, 3, **options))


@pytest.mark.parametrize("options", [{"aggr": "lstm"}, {"aggr": ["mean", "max"]}, {"aggr": "median"}], ids=str)
def test_other_aggregates_are_refused(options: dict) -> None:
    with refuses(ConfigurationError, "SAGEConv", "aggr"):
        SAGEConv(WIDTH, 4, **options)


def test_other_arguments_are_refused() -> None:
    with refuses(ConfigurationError, "SAGEConv", "flow", "not supported"):
        SAGEConv(WIDTH, 4, flow="source_to_target")
