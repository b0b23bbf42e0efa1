from __future__ import annotations

import pytest
import torch

import lotan.nn
from lotan.errors import ConfigurationError
from tests.nn.parity import WIDTH, assert_parity, pyg, refuses

NODE = {"norm": "layer_norm", "norm_kwargs": {"mode": "node"}}
OPTIONS = [
    {},
    {"num_layers": 1},
    {"num_layers": 3, "act": "elu"},
    {"out_channels": None},
    {"num_layers": 3, "dropout": 0.5},
    {"act": "LeakyReLU", "act_kwargs": {"negative_slope": 0.3}},
    {"act": None},
    NODE,
    {**NODE, "act_first": True, "jk": "cat"},
    {"norm": "BatchNorm"},
    {"jk": "last"},
    {"jk": "max", "num_layers": 3, "act": "tanh"},
    {"jk": "cat", "out_channels": None},
    {"jk": "lstm", "num_layers": 3},
]
LAYERS = [
    ("GCN", {"bias": False}),
    ("GCN", {"normalize": False}),
    ("GraphSAGE", {"aggr": "max"}),
    ("GraphSAGE", {"project": True, "normalize": True}),
    ("GIN", {"train_eps": True, "eps": 0.1}),
    ("GAT", {"heads": 4}),
    ("GAT", {"heads": 2, "concat": False, "residual": True}),
    ("GAT", {"heads": 2, "jk": "cat", "dropout": 0.3}),
]


def assert_same(name: str, options: dict, weighted: bool = False) -> None:
    arguments = {"num_layers": 2, "out_channels": 4, **options}
    assert_parity(
        lambda: getattr(lotan.nn, name)(WIDTH, 8, **arguments),
        lambda: getattr(pyg, name)(WIDTH, 8, **arguments),
        weighted,
    )


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN", "GAT"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_pyg(name: str, options: dict) -> None:
    assert_same(name, options)


@pytest.mark.parametrize(("name", "options"), LAYERS, ids=str)
def test_arguments_of_layers_reach_them(name: str, options: dict) -> None:
    assert_same(name, options)


def test_edge_weights_reach_the_layers() -> None:
    assert_same("GCN", {}, weighted=True)


def test_a_module_as_norm_is_copied_for_each_layer() -> None:
    assert_parity(
        lambda: lotan.nn.GCN(WIDTH, 8, 3, 4, norm=torch.nn.LayerNorm(8)),
        lambda: pyg.GCN(WIDTH, 8, 3, 4, norm=torch.nn.LayerNorm(8)),
    )


def test_a_module_as_activation_keeps_its_parameters() -> None:
    assert_parity(
        lambda: lotan.nn.GraphSAGE(WIDTH, 8, 2, 4, act=torch.nn.PReLU()),
        lambda: pyg.GraphSAGE(WIDTH, 8, 2, 4, act=torch.nn.PReLU()),
    )


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN", "GAT"])
@pytest.mark.parametrize("options", [{"norm": "pair_norm"}, {"norm": "GraphNorm"}], ids=str)
def test_norms_without_a_name_here_are_refused_with_what_to_pass(name: str, options: dict) -> None:
    with refuses(ConfigurationError, options["norm"], "norm=None", "layer_norm", "the module itself"):
        getattr(lotan.nn, name)(WIDTH, 8, 2, 4, **options)


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN", "GAT"])
@pytest.mark.parametrize(
    "options", [{"jk": "gru"}, {"num_layers": 0}, {"in_channels": -1}, {"in_channels": (6, 6)}, {"colour": 1}], ids=str
)
def test_bad_arguments_are_refused_by_name(name: str, options: dict) -> None:
    arguments = {"in_channels": WIDTH, "hidden_channels": 8, "num_layers": 2, "out_channels": 4, **options}
    with refuses(ConfigurationError, next(iter(options))):
        getattr(lotan.nn, name)(**arguments)


@pytest.mark.parametrize("options", [{"v2": True}, {"heads": 3}, {"edge_dim": 2}], ids=str)
def test_unsupported_arguments_of_gat_are_refused(options: dict) -> None:
    with refuses(ConfigurationError, next(iter(options))):
        lotan.nn.GAT(WIDTH, 8, 2, 4, **options)


def test_jumping_knowledge_refuses_what_it_cannot_join() -> None:
    with refuses(ConfigurationError, "JumpingKnowledge", "mode='gru'", "'lstm'"):
        lotan.nn.JumpingKnowledge("gru")
    with refuses(ConfigurationError, "JumpingKnowledge", "channels=None"):
        lotan.nn.JumpingKnowledge("lstm")


def test_a_layer_that_only_pyg_has_is_named() -> None:
    with pytest.raises(AttributeError, match=r"no 'GATv2Conv'.*torch_geometric\.nn has GATv2Conv, use it in the model"):
        lotan.nn.GATv2Conv  # noqa: B018
