"""Models of PyG for several types of vertices train as in PyG, on each engine."""

from __future__ import annotations

import copy
import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import lotan
from tests.night import at_night
from tests.tracing.hetero_models import (
    ATTRIBUTES,
    CLASSES,
    COUNTS,
    MODELS,
    RELATIONS,
    WIDTHS,
    made,
    messy_data,
    with_attributes,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg

pytestmark = pytest.mark.thorough

EPOCHS = 3
FLAT = (
    "HeteroConv",
    "HeteroConv, mean",
    "HAN",
    "HGT",
    "statistics",
    "to_hetero with BatchNorm",
    "attributes",
    "turned",
)
"""The models with a parameter of which a gradient is 0 or nearly so. Adam would make steps of its rounding errors."""


def rows_of(model: torch.nn.Module, data: Any) -> torch.Tensor:
    names = inspect.signature(
        model.forward
    ).parameters  # a model of `to_hetero` calls its dictionaries x and edge_index
    found = model(*(getattr(data, f"{name.removesuffix('_dict')}_dict") for name in names))
    return found if isinstance(found, torch.Tensor) else found["paper"]


def trained_by_pyg(model: torch.nn.Module, data: Any, kind: str, epochs: int) -> list[float]:
    steps = getattr(torch.optim, kind)(model.parameters(), lr=0.01)
    losses, paper = [], data["paper"]
    for _ in range(epochs):
        model.train()
        loss = torch.nn.functional.cross_entropy(rows_of(model, data)[paper.train_mask], paper.y[paper.train_mask])
        losses.append(loss.item())
        steps.zero_grad()
        loss.backward()
        steps.step()
    return losses


def assert_trains_as_pyg(
    name: str, graph: lotan.HeteroGraph | None = None, epochs: int = EPOCHS, **options: Any
) -> Any:
    data = with_attributes() if name == "attributes" else messy_data()
    ours, theirs = made(name), made(name)
    kind = "SGD" if name in FLAT else "Adam"
    settings = {"optimizer": getattr(lotan, kind)(lr=0.01), "epochs": epochs, "progress": False, **options}
    run = lotan.Trainer(ours, graph or lotan.HeteroGraph.from_pyg(data), **settings).fit()
    losses = trained_by_pyg(theirs, data, kind, epochs)
    assert [epoch["loss"] for epoch in run.history] == pytest.approx(losses, abs=2e-5)
    for key, value in theirs.state_dict().items():
        torch.testing.assert_close(
            ours.state_dict()[key], value, rtol=0, atol=5e-4, msg=lambda m, key=key: f"{key}: {m}"
        )
    return run


AT_NIGHT = ("HeteroConv, mean", "to_hetero", "HAN", "statistics", "turned")


@pytest.mark.parametrize(
    "name", at_night([(name,) for name in MODELS], unless=[(name,) for name in MODELS if name not in AT_NIGHT])
)
def test_trains_as_in_pyg(name: str) -> None:
    assert_trains_as_pyg(name, engine="local")


class OneNumber(torch.nn.Module):
    """Attributes that are one number for each edge, as weights of a sum; others have a row."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GraphConv((WIDTHS[RELATIONS[0][0]], WIDTHS["paper"]), CLASSES)

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> torch.Tensor:
        (source, _, target), number = RELATIONS[0], edge_attr_dict[RELATIONS[0]]
        assert number.dim() == 1
        return self.conv((x_dict[source], x_dict[target]), edge_index_dict[RELATIONS[0]], number)


def test_attributes_of_one_number_for_each_edge_stay_so() -> None:
    data = with_attributes()
    data[RELATIONS[0]].edge_attr = data[RELATIONS[0]].edge_attr[:, 0]
    graph = lotan.HeteroGraph.from_pyg(data)
    assert graph.to_pyg()[RELATIONS[0]].edge_attr.dim() == 1
    ours = OneNumber()
    theirs = copy.deepcopy(ours)
    run = lotan.Trainer(ours, graph, optimizer=lotan.SGD(lr=0.01), epochs=2, engine="local", progress=False).fit()
    losses = trained_by_pyg(theirs, data, "SGD", 2)
    assert [epoch["loss"] for epoch in run.history] == pytest.approx(losses, abs=2e-5)


def test_predicts_the_vertices_of_the_type_with_labels() -> None:
    data, model = messy_data(), made("RGCN")
    data["paper"].n_id = torch.arange(COUNTS["paper"]) * 3 + 100
    run = lotan.Trainer(model, lotan.HeteroGraph.from_pyg(data), epochs=2, engine="local", progress=False).fit()
    found = run.predict()
    assert found["id"].tolist() == data["paper"].n_id.tolist()
    expected = rows_of(model.eval(), data).softmax(dim=-1).detach()
    np.testing.assert_allclose(np.stack(found["probability"]), expected, rtol=1e-4, atol=1e-6)


def test_a_saved_model_predicts_the_same_types_only(tmp_path: Path) -> None:
    graph = lotan.HeteroGraph.from_pyg(messy_data())
    run = lotan.Trainer(made("HeteroConv"), graph, epochs=1, engine="local", progress=False).fit()
    run.save(tmp_path)
    saved = lotan.load(tmp_path)
    pd.testing.assert_frame_equal(saved.predict(graph, engine="local"), run.predict())
    other = messy_data()
    other["venue"].x = torch.rand(COUNTS["venue"], 7)
    with pytest.raises(lotan.GraphError, match="differs from that of training in its numbers of features: 4, 6, 7 in"):
        saved.predict(lotan.HeteroGraph.from_pyg(other), engine="local")
    with pytest.raises(
        lotan.GraphError, match="of training has several types of vertices, and that of this one has one"
    ):
        saved.predict(lotan.Graph.read("digits"), engine="local")


def test_the_command_line_reads_a_folder_of_types(tmp_path: Path) -> None:
    from lotan.cli import main

    lotan.HeteroGraph.from_pyg(messy_data()).save(tmp_path / "graph")
    where = ["--graph", str(tmp_path / "graph"), "--engine", "local", "--task-type", "paper"]
    model = f"{made.__module__}:Relational"
    assert main(["train", *where, "--model", model, "--epochs", "1", "--quiet", "--save", str(tmp_path / "model")]) == 0
    out = tmp_path / "predictions.parquet"
    assert main(["predict", *where, "--model-dir", str(tmp_path / "model"), "--out", str(out)]) == 0
    assert pd.read_parquet(out)["id"].tolist() == list(range(COUNTS["paper"]))


def refused(model: torch.nn.Module, said: str, graph: lotan.Graph | None = None) -> None:
    with pytest.raises(lotan.ModelError, match=said):
        lotan.Trainer(model, graph or lotan.HeteroGraph.from_pyg(messy_data()), engine="local", progress=False).fit()


class Asks(torch.nn.Module):
    """A model whose forward is a function of both dictionaries."""

    def __init__(self, run: Any) -> None:
        super().__init__()
        self.lin, self.run = torch.nn.Linear(6, CLASSES), run

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return self.run(self, x_dict, edge_index_dict)


def test_a_relation_or_a_type_that_is_not_there_is_named() -> None:
    import torch_geometric.nn as pyg

    conv = pyg.HeteroConv({("author", "reads", "paper"): pyg.SAGEConv((4, 6), CLASSES)})
    refused(
        Asks(lambda _, x, edges: conv(x, edges)["paper"]),
        "asks for edges author -> reads -> paper, which the graph lacks",
    )
    refused(
        Asks(lambda _, x, edges: x["reader"]), "asks for vertices of type 'reader'; the graph has author, paper, venue"
    )
    data = messy_data()
    del data["author"].x
    data["author"].num_nodes = COUNTS["author"]
    without = lotan.HeteroGraph.from_pyg(data)
    refused(made("HeteroConv"), "reads features of vertices of type 'author', which have none", without)


def test_attributes_that_a_relation_lacks_are_named() -> None:
    class Reads(torch.nn.Module):
        def __init__(self, relation: tuple[str, str, str]) -> None:
            super().__init__()
            self.relation, self.lin = relation, torch.nn.Linear(6, CLASSES)

        def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> torch.Tensor:
            return self.lin(x_dict["paper"]) + edge_attr_dict[self.relation].sum()

    graph = lotan.HeteroGraph.from_pyg(with_attributes())
    refused(Reads(RELATIONS[1]), "reads attributes of edges paper -> by -> author, which have none", graph)
    refused(Reads(("author", "reads", "paper")), "author -> reads -> paper, which the graph lacks", graph)
    refused(Reads(RELATIONS[0]), "asks for 'edge_attr_dict' .attributes of edges., but the graph has only")


def test_what_does_not_fit_several_types_is_refused() -> None:
    refused(Asks(lambda model, x, _: {"author": x["author"]}), "returns rows of author, and none of 'paper'")
    refused(
        Asks(lambda model, x, _: x["author"][:, :3]), "returns rows of 'author', but the labels are those of 'paper'"
    )
    refused(Asks(lambda model, x, _: model.lin(x["paper"]) + x["venue"]), "combines rows of different kinds")
    refused(lotan.nn.GCN(6, 8, 2, CLASSES), "takes a graph of one type of vertices, but this one has the types author")
    refused(made("HAN"), r"asks for 'x_dict'.* train it on a lotan.HeteroGraph", lotan.Graph.read("digits"))


def test_the_variance_of_a_type_of_one_vertex_is_refused() -> None:
    """As in torch, though the graph has many vertices of other types. The layer and the type are named."""
    data = messy_data()
    data["author"].x = data["author"].x[:1]
    for relation in (("author", "writes", "paper"), ("paper", "by", "author")):
        data[relation].edge_index[0 if relation[0] == "author" else 1] = 0
    refused(
        made("to_hetero with BatchNorm"),
        "normalises by the variance of the vertices of type 'author', of which the graph has 1; training needs at least 2",
        lotan.HeteroGraph.from_pyg(data),
    )


def test_means_and_maxima_collect_nothing() -> None:
    text = lotan.Trainer(made("RGCN"), lotan.HeteroGraph.from_pyg(messy_data()), engine="local").explain(
        stage="physical"
    )
    assert "Collect" not in text
    assert "graph:0 is author -> writes -> paper" in " ".join(text.split())
    assert "graph:0" in text


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly  # by day on tables of Spark, below
@pytest.mark.parametrize("name", MODELS)
def test_trains_as_in_pyg_on_blocks(name: str, spark: object) -> None:
    assert_trains_as_pyg(name, engine="blocks", partitions=3 if name == "HeteroConv" else 2)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", MODELS)
def test_trains_as_in_pyg_on_rows(name: str, spark: object) -> None:
    assert_trains_as_pyg(name, engine="rows", partitions=2, epochs=2)


@pytest.mark.spark
@pytest.mark.slow
def test_trains_and_predicts_on_spark_tables(spark: Any) -> None:
    data = with_attributes()
    vertices, edges = {}, {}
    for name in WIDTHS:
        table = pd.DataFrame({"id": np.arange(COUNTS[name]) * 2, "features": data[name].x.tolist()})
        if name == "paper":
            table["label"] = data[name].y.numpy()
            table["train_mask"] = data[name].train_mask.numpy()
        vertices[name] = table if name == "venue" else spark.createDataFrame(table)
    for relation in RELATIONS:
        src, dst = (data[relation].edge_index * 2).numpy()
        table = pd.DataFrame({"src": src, "dst": dst})
        if relation in ATTRIBUTES:
            table["how"] = data[relation].edge_attr.tolist()
        edges[relation] = spark.createDataFrame(table)
    graph = lotan.HeteroGraph(vertices, edges, edge_features="how")
    run = assert_trains_as_pyg("attributes", graph, engine="blocks", partitions=2)
    predicted = run.predict()
    assert sorted(row.id for row in predicted.collect()) == (np.arange(COUNTS["paper"]) * 2).tolist()
    assert dict(predicted.dtypes)["id"] == "bigint"
    predicted.unpersist()
    unknown = edges | {RELATIONS[0]: spark.createDataFrame(pd.DataFrame({"src": [1], "dst": [0]}))}
    with pytest.raises(lotan.GraphError, match="edge_features is 'what', and no relation has attributes of this name"):
        lotan.HeteroGraph(vertices, edges, edge_features="what")
    with pytest.raises(lotan.GraphError, match="author:1"):
        lotan.Trainer(made("HeteroConv"), lotan.HeteroGraph(vertices, unknown), engine="blocks", progress=False).fit()
