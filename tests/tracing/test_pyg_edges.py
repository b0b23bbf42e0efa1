"""Models of PyG that read attributes and types of edges, from the trainer's door: what trains, and what is refused."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import lotan
from lotan.engines.choice import ENGINES
from lotan.errors import ConfigurationError, GraphError, ModelError
from tests.tracing.test_pyg_layers import WIDTH, messy_graph

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg

QUICK = {"engine": "local", "epochs": 2, "progress": False}


class Typed(torch.nn.Module):
    def __init__(self, relations: int = 3, width: int = 2) -> None:
        super().__init__()
        self.first = pyg.GATConv(WIDTH, 4, heads=2, edge_dim=width)
        self.second = pyg.RGCNConv(8, 3, num_relations=relations)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, edge_type: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_type)


def test_predictions_of_a_saved_model_equal_the_model_itself(tmp_path) -> None:
    torch.manual_seed(0)
    graph, model = messy_graph(), Typed()
    run = lotan.Trainer(model, graph, **QUICK).fit()
    run.save(tmp_path / "model")
    data = graph.to_pyg()
    with torch.no_grad():
        expected = model.eval()(data.x, data.edge_index, data.edge_attr, data.edge_type).argmax(1)
    found = lotan.load(tmp_path / "model").predict(graph, engine="local")
    assert found["prediction"].tolist() == expected.tolist()
    with pytest.raises(GraphError, match=r"edge_type: .*not among the 3 of layer 'second', 0 to 2"):
        lotan.load(tmp_path / "model").predict(messy_graph(types=4), engine="local")


def test_a_type_beyond_the_relations_of_a_layer_is_refused() -> None:
    with pytest.raises(GraphError, match=r"edge_type: .*not among the 2 of layer 'second', 0 to 1.*more relations"):
        lotan.Trainer(Typed(relations=2), messy_graph(), **QUICK).fit()


def test_attributes_of_another_width_are_refused() -> None:
    with pytest.raises(ModelError, match=r"layer 'first.lin_edge' .*rows of width 2, but its in_channels is 5"):
        lotan.Trainer(Typed(width=5), messy_graph(), **QUICK).fit()


def test_a_graph_without_the_column_is_refused() -> None:
    graph = lotan.Graph.from_arrays(np.ones((3, WIDTH), dtype=np.float32), [0, 1], [1, 2], [0, 1, 2], [0, 0, 0])
    with pytest.raises(ModelError, match=r"asks for 'edge_attr'.*has only x, edge_index, adj_t; .*edge_features="):
        lotan.Trainer(Typed(), graph, **QUICK).fit()


class Improved(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(WIDTH, 3, improved=True)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return self.conv(x, edge_index, edge_weight)


@pytest.mark.parametrize(
    ("model", "words"), [(Typed, "edge_attr and edge_type"), (Improved, "which edges are self-loops")]
)
def test_an_engine_says_that_it_has_no_columns_of_edges(
    model: type[torch.nn.Module], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENGINES, "rows", replace(ENGINES["rows"], abilities=()))
    with pytest.raises(
        ConfigurationError, match=f"engine rows brings no columns of edges .*reads {words}; use engine local"
    ):
        lotan.Trainer(model(), messy_graph(), **{**QUICK, "engine": "rows"}).explain()
