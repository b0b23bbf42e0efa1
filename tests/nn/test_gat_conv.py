from __future__ import annotations

import pytest

from lotan.errors import ConfigurationError
from lotan.nn import GATConv
from tests.nn.parity import WIDTH, assert_parity, gradcheck, pyg, refuses

OPTIONS = [
    {},
    {"heads": 3},
    {"heads": 3, "concat": False},
    {"negative_slope": 0.05},
    {"add_self_loops": False},
    {"bias": False},
    {"residual": True, "heads": 2},
    {"residual": True, "heads": 2, "concat": False, "bias": False},
    {"dropout": 0.4, "heads": 2},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_pyg(options: dict) -> None:
    # With dropout both draw in the order of the edges, which is the same.
    assert_parity(lambda: GATConv(WIDTH, 4, **options), lambda: pyg.GATConv(WIDTH, 4, **options))


@pytest.mark.parametrize("options", OPTIONS[:3] + OPTIONS[4:5], ids=str)
def test_gradients_equal_finite_differences(options: dict) -> None:
    gradcheck(GATConv(WIDTH, 3, **options))


@pytest.mark.parametrize("options", [{"edge_dim": 4}, {"fill_value": 1.0}, {"flow": "target_to_source"}], ids=str)
def test_unsupported_arguments_are_refused_by_name(options: dict) -> None:
    with refuses(ConfigurationError, "GATConv", next(iter(options)), "not supported"):
        GATConv(WIDTH, 4, **options)


def test_pairs_of_widths_are_refused() -> None:
    with refuses(ConfigurationError, "GATConv", "in_channels"):
        GATConv((WIDTH, WIDTH), 4)  # type: ignore[arg-type]
