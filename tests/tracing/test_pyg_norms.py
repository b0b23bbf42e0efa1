"""PyG's norms inside models that are imported: three epochs of training equal PyG's own, running statistics included."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import Tensor

import lotan
from lotan.errors import ModelError
from lotan.tracing.trace import trace
from tests.night import at_night
from tests.tracing.test_pyg_layers import EPOCHS, assert_same_training, messy_graph, trained_by_pyg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg
    import torch_geometric.nn.norm

pytestmark = pytest.mark.thorough

HIDDEN = 8
NORMS = {
    "BatchNorm": lambda: pyg.BatchNorm(HIDDEN),
    "DiffGroupNorm": lambda: pyg.DiffGroupNorm(HIDDEN, groups=2),
    "GraphNorm": lambda: pyg.GraphNorm(HIDDEN),
    "GraphSizeNorm": lambda: pyg.GraphSizeNorm(),
    "HeteroLayerNorm": lambda: pyg.HeteroLayerNorm(HIDDEN, num_types=2),
    "InstanceNorm": lambda: pyg.InstanceNorm(HIDDEN, affine=True, track_running_stats=True),
    "LayerNorm": lambda: pyg.LayerNorm(HIDDEN),
    "MeanSubtractionNorm": lambda: pyg.MeanSubtractionNorm(),
    "MessageNorm": lambda: pyg.MessageNorm(learn_scale=True),
    "PairNorm": lambda: pyg.PairNorm(),
}
"""Every norm of PyG that works, by the name of its class."""


class Normalised(torch.nn.Module):
    """Two layers of PyG with a norm between them."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.first, self.norm = pyg.GATv2Conv(6, HIDDEN, edge_dim=2), NORMS[name]()
        self.second, self.name = pyg.SAGEConv(HIDDEN, 3), name

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        h = self.first(x, edge_index, edge_attr)
        match self.name:
            case "HeteroLayerNorm":
                h = self.norm(h, (x[:, 0] > 0).long())
            case "MessageNorm":
                h = self.norm(x.repeat(1, 2)[:, :HIDDEN], h)
            case _:
                h = self.norm(h)
        return self.second(h.relu(), edge_index)


def assert_trains_as_pyg(name: str, **options: object) -> None:
    torch.manual_seed(3)
    ours = Normalised(name)
    theirs, graph = copy.deepcopy(ours), messy_graph()
    settings = {"optimizer": lotan.SGD(lr=0.1), "epochs": EPOCHS, "eval_every": EPOCHS, "progress": False, **options}
    run = lotan.Trainer(ours, graph, **settings).fit()  # the last weights are kept, as there is one evaluation
    losses = trained_by_pyg(theirs, graph, torch.optim.SGD, lr=0.1)
    assert_same_training(run, losses, ours, theirs)


@pytest.mark.parametrize(
    "name", at_night([(name,) for name in NORMS], unless=[("BatchNorm",), ("HeteroLayerNorm",), ("MessageNorm",)])
)  # by day, the others with plain torch: tests/exactness/test_norms.py
def test_trains_as_in_pyg(name: str) -> None:
    assert_trains_as_pyg(name, engine="local")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["BatchNorm", "GraphSizeNorm"])
def test_trains_as_in_pyg_on_blocks(name: str, spark: object) -> None:
    assert_trains_as_pyg(name, engine="blocks", partitions=3)


def test_each_norm_is_tried() -> None:
    assert {*torch_geometric.nn.norm.classes} == {*NORMS, "HeteroBatchNorm"}


def test_statistics_by_type_are_refused() -> None:
    class Typed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = pyg.SAGEConv(6, 3), pyg.HeteroBatchNorm(3, num_types=2)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.norm(self.conv(x, edge_index), (x[:, 0] > 0).long())

    with pytest.raises(
        ModelError, match=r"layer 'norm' .torch_geometric HeteroBatchNorm.*nearest that works is BatchNorm"
    ):
        trace(Typed(), 6, training=True)


def test_a_norm_of_several_graphs_is_refused() -> None:
    class Several(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = pyg.GraphSizeNorm()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.norm(x, (x[:, 0] > 0).long())

    with pytest.raises(ModelError, match=r"got a `batch`.*leave it out"):
        trace(Several(), 6, training=True)
