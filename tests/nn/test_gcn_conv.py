from __future__ import annotations

import pytest

from lotan.errors import ConfigurationError
from lotan.nn import GCNConv
from tests.nn.parity import WIDTH, assert_parity, gradcheck, pyg, refuses

OPTIONS = [
    {},
    {"bias": False},
    {"add_self_loops": False},
    {"normalize": False},
    {"normalize": False, "bias": False},
    {"aggr": "sum"},
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_pyg(options: dict, weighted: bool) -> None:
    assert_parity(lambda: GCNConv(WIDTH, 4, **options), lambda: pyg.GCNConv(WIDTH, 4, **options), weighted)


@pytest.mark.parametrize("options", [{}, {"add_self_loops": False}, {"normalize": False}], ids=str)
def test_gradients_equal_finite_differences(options: dict) -> None:
    gradcheck(GCNConv(WIDTH, 3, **options))


@pytest.mark.parametrize(
    "options",
    [{"improved": True}, {"aggr": "max"}, {"flow": "target_to_source"}, {"node_dim": 0}],
    ids=str,
)
def test_unsupported_arguments_are_refused_by_name(options: dict) -> None:
    with refuses(ConfigurationError, "GCNConv", next(iter(options)), "not supported"):
        GCNConv(WIDTH, 4, **options)


@pytest.mark.parametrize("width", [-1, 0, (6, 6), None])
def test_lazy_and_bipartite_widths_are_refused(width: object) -> None:
    with refuses(ConfigurationError, "GCNConv", "in_channels"):
        GCNConv(width, 4)  # type: ignore[arg-type]


def test_self_loops_without_normalisation_are_refused() -> None:
    with refuses(ConfigurationError, "add_self_loops=True", "normalize=False"):
        GCNConv(WIDTH, 4, add_self_loops=True, normalize=False)
