"""Label propagation, and Correct and Smooth: as those of PyG, on each engine."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import lotan
from lotan.errors import ConfigurationError, GraphError
from tests.tracing.test_pyg_layers import messy_graph

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

CLASSES = 3


def normalised(graph: lotan.Graph):
    """PyG's data, and its edges with the weights that both libraries sum with."""
    data = graph.to_pyg()
    return data, *gcn_norm(data.edge_index, data.edge_weight, data.num_nodes, add_self_loops=False)


def soft() -> tuple[torch.Tensor, pd.DataFrame]:
    """Predictions of 40 vertices, as a tensor and as a frame in another order."""
    values = torch.rand(40, CLASSES, generator=torch.Generator().manual_seed(0)).softmax(-1)
    return values, pd.DataFrame({"id": np.arange(40), "probability": list(values.numpy())}).sample(
        frac=1, random_state=1
    )


def in_spark(graph: lotan.Graph, spark) -> lotan.Graph:
    vertices, edges = graph.frames(spark)
    split = "CASE split WHEN 0 THEN 'train' WHEN 1 THEN 'val' WHEN 2 THEN 'test' END AS split"
    return lotan.Graph(vertices.selectExpr("id", "features", "label", split), edges, weight="weight")


def assert_equal(found: pd.DataFrame, expected: torch.Tensor) -> None:
    np.testing.assert_allclose(np.stack(found["score"]), expected.numpy(), atol=1e-5)
    assert found["prediction"].tolist() == expected.argmax(1).tolist()
    assert found["id"].tolist() == list(range(len(expected)))


def propagated(graph: lotan.Graph) -> torch.Tensor:
    data, index, weight = normalised(graph)
    truth = torch.nn.functional.one_hot(data.y, CLASSES).float()
    return pyg.LabelPropagation(3, 0.9)(truth, index, data.train_mask, weight)


def smoothed(graph: lotan.Graph, **options: object) -> torch.Tensor:
    data, index, weight = normalised(graph)
    model, known = pyg.CorrectAndSmooth(3, 0.9, 2, 0.7, **options), data.y[data.train_mask]
    corrected = model.correct(soft()[0], known, data.train_mask, index, weight)
    return model.smooth(corrected, known, data.train_mask, index, weight)


def test_labels_are_spread_as_in_pyg() -> None:
    graph = messy_graph()
    assert_equal(lotan.LabelPropagation(3, 0.9).predict(graph, engine="local"), propagated(graph))


@pytest.mark.parametrize("options", [{}, {"autoscale": False, "scale": 1.5}])
def test_predictions_are_corrected_and_smoothed_as_in_pyg(options: dict[str, object]) -> None:
    graph = messy_graph()
    found = lotan.CorrectAndSmooth(3, 0.9, 2, 0.7, **options).predict(graph, soft()[1], engine="local")
    assert_equal(found, smoothed(graph, **options))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "engine",
    ["local", pytest.param("blocks", marks=pytest.mark.nightly), pytest.param("rows", marks=pytest.mark.nightly)],
)
def test_both_run_on_tables_in_spark(spark, engine: str) -> None:
    graph = in_spark(messy_graph(), spark)
    found = lotan.LabelPropagation(3, 0.9).predict(graph, engine=engine, partitions=3)
    assert_equal(found.toPandas().sort_values("id", ignore_index=True), propagated(messy_graph()))
    found.unpersist()
    found = lotan.CorrectAndSmooth(3, 0.9, 2, 0.7).predict(graph, spark.createDataFrame(soft()[1]), engine=engine)
    assert_equal(found.toPandas().sort_values("id", ignore_index=True), smoothed(messy_graph()))
    found.unpersist()


def test_classes_that_are_texts_come_back_as_texts() -> None:
    graph = lotan.Graph.from_arrays([[0.0]] * 3, [0, 1], [1, 2], label=["b", "a", None], split=["train", "train", None])
    found = lotan.LabelPropagation(2, 0.5).predict(graph, engine="local")
    assert found["prediction"].tolist() == ["b", "a", "a"]


def test_bad_input_is_refused() -> None:
    graph = messy_graph()
    with pytest.raises(ConfigurationError, match=r"LabelPropagation got alpha=1.5; expected a number from 0 to 1"):
        lotan.LabelPropagation(3, 1.5)
    with pytest.raises(ConfigurationError, match="num_layers=0"):
        lotan.CorrectAndSmooth(0, 0.5, 1, 0.5)
    with pytest.raises(GraphError, match="no training vertex has a class"):
        lotan.LabelPropagation(1, 0.5).predict(graph.relabelled(), engine="local")
    smooth, predictions = lotan.CorrectAndSmooth(1, 0.5, 1, 0.5), soft()[1]
    with pytest.raises(GraphError, match="predictions: 1 vertices have none, such as 4"):
        smooth.predict(graph, predictions[predictions["id"] != 4], engine="local")
    narrow = predictions.assign(probability=[row[:2] for row in predictions["probability"]])
    with pytest.raises(GraphError, match="have 2 probabilities, but training vertices have 3 classes"):
        smooth.predict(graph, narrow, engine="local")
