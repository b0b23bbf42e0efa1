from __future__ import annotations

import pytest
import torch

from lotan.errors import ConfigurationError
from lotan.nn import MLP
from tests.nn.parity import WIDTH, assert_parity, assert_same_state, pyg, refuses

NODE = {"norm": "layer_norm", "norm_kwargs": {"mode": "node"}}
OPTIONS = [
    {"channel_list": [WIDTH, 8, 4], "norm": None},
    {"in_channels": WIDTH, "hidden_channels": 8, "out_channels": 4, "num_layers": 3, "norm": None},
    {"channel_list": WIDTH, "hidden_channels": 8, "out_channels": 4, "num_layers": 1, "norm": None},
    {"channel_list": [WIDTH, 8, 4], **NODE},
    {"channel_list": [WIDTH, 8, 4]},
    {"channel_list": [WIDTH, 8, 4], "norm": "batch_norm", "norm_kwargs": {"momentum": 0.3, "affine": False}},
    {"channel_list": [WIDTH, 8, 4], "norm": "layer_norm"},
    {"channel_list": [WIDTH, 8, 4], **NODE, "act_first": True, "plain_last": False},
    {"channel_list": [WIDTH, 8, 4], "norm": None, "bias": [True, False]},
    {
        "channel_list": [WIDTH, 8, 4],
        "norm": None,
        "bias": False,
        "act": "leaky_relu",
        "act_kwargs": {"negative_slope": 0.3},
    },
    {"channel_list": [WIDTH, 8, 4], "norm": None, "act": None},
    {"channel_list": [WIDTH, 8, 8, 4], "norm": None, "dropout": 0.5},
    {"channel_list": [WIDTH, 8, 8, 4], "norm": None, "dropout": [0.5, 0.1, 0.3]},
    {"channel_list": [WIDTH, 8, 8, 4], "norm": None, "dropout": 0.5, "plain_last": False, "act": "swish"},
]


class Graphless(torch.nn.Module):
    """Lets a model that knows no edges be called as one that does."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, graph: torch.Tensor) -> torch.Tensor:
        return self.model(x)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_pyg(options: dict) -> None:
    assert_parity(lambda: Graphless(MLP(**options)), lambda: Graphless(pyg.MLP(**options)))


def test_one_module_as_norm_is_shared() -> None:
    torch.manual_seed(0)
    ours = MLP([WIDTH, 8, 8, 4], norm=torch.nn.LayerNorm(8))
    torch.manual_seed(0)
    assert_same_state(ours, pyg.MLP([WIDTH, 8, 8, 4], norm=torch.nn.LayerNorm(8)))
    assert ours.norms[0] is ours.norms[1]


def test_takes_a_graph_and_ignores_it() -> None:
    model, x = MLP([WIDTH, 4], norm=None), torch.randn(3, WIDTH)
    assert torch.equal(model(x, torch.tensor([[0, 1], [1, 2]])), model(x))


def test_an_unknown_mode_is_refused_with_what_to_pass() -> None:
    with refuses(ConfigurationError, "mode='row'", "'node'", "'graph'"):
        MLP([WIDTH, 8, 4], norm="layer_norm", norm_kwargs={"mode": "row"})


@pytest.mark.parametrize(
    "options",
    [
        {"channel_list": [WIDTH]},
        {"in_channels": WIDTH, "out_channels": 4},
        {"channel_list": [WIDTH, 8, 4], "dropout": [0.1]},
        {"channel_list": [WIDTH, 8, 4], "norm": "nonsense"},
        {"channel_list": [WIDTH, 8, 4], "act": "nonsense"},
        {"channel_list": [WIDTH, 8, 4], "relu_first": True},
    ],
    ids=str,
)
def test_bad_arguments_are_refused(options: dict) -> None:
    with pytest.raises(ConfigurationError):
        MLP(**{"norm": None, **options})
