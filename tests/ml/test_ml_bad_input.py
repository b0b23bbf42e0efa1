"""What cannot be trained or predicted is a typed error before work starts, which says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import lotan
from lotan.ml import GNNClassificationModel, GNNClassifier, GNNRegressionModel, GNNRegressor

pytestmark = pytest.mark.spark

Frames = tuple[DataFrame, DataFrame]
QUICK: dict[str, Any] = {"engine": "local", "epochs": 1, "hiddenChannels": 4}


@pytest.fixture(scope="module")
def fitted(graph: Frames) -> GNNClassificationModel:
    vertices, edges = graph
    return GNNClassifier(**QUICK).setEdges(edges).setVertices(vertices).fit(vertices)


DATASETS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "no label": (lambda v: v.drop("label"), "dataset: there is no column 'label'"),
    "no id": (lambda v: v.drop("id"), "dataset: there is no column 'id'"),
    "text": (lambda v: v.withColumn("label", F.lit("cat")), r"dataset.label: is of type string.*StringIndexer"),
    "arrays": (lambda v: v.withColumn("label", F.array("label")), "is of type array<double>, expected one number"),
    "halves": (lambda v: v.withColumn("label", F.col("label") + 0.5), r"60 labels that are no classes .*id 0: 0.5"),
    "negative": (lambda v: v.withColumn("label", F.col("label") - 7), "labels that are no classes"),
    "unlabelled": (
        lambda v: v.withColumn("label", F.lit(None).cast("int")),
        "60 vertices of a split that have no label",
    ),
    "unknown id": (
        lambda v: v.withColumn("id", F.col("id") + 1),
        r"dataset.id: 1 ids that are not among all vertices .*60",
    ),
    "ids of text": (lambda v: v.withColumn("id", F.col("id").cast("string")), "and the ids of all vertices are bigint"),
    "twice": (lambda v: v.unionAll(v.where("id < 2")), "vertices.id: 2 ids that occur more than once"),
    "unknown split": (lambda v: v.withColumn("split", F.lit("training")), "60 rows of an unknown split"),
    "other features": (
        lambda v: v.withColumn("features", F.transform("features", lambda x: x * F.col("fold"))),
        "dataset.features: .* rows whose features are not those of all vertices .*before setVertices",
    ),
    "features of text": (lambda v: v.withColumn("features", F.lit("x")), "dataset.features: is of type string"),
}


@pytest.mark.parametrize("kind", DATASETS)
def test_a_dataset_that_cannot_train(graph: Frames, kind: str) -> None:
    vertices, edges = graph
    change, message = DATASETS[kind]
    with pytest.raises(lotan.GraphError, match=message):
        GNNClassifier(splitCol="split", **QUICK).setEdges(edges).setVertices(vertices).fit(change(vertices))


def test_a_fold_without_the_other_vertices(graph: Frames, fitted: GNNClassificationModel) -> None:
    vertices, edges = graph
    fold = vertices.where("fold = 0")
    with pytest.raises(lotan.GraphError, match=r"not among the vertices.*give all by setVertices"):
        GNNClassifier(**QUICK).setEdges(edges).fit(fold)
    alone = GNNClassificationModel(fitted.trained).setEdges(edges).setEngine("local")
    with pytest.raises(lotan.GraphError, match=r"not among the vertices.*give all by setVertices"):
        alone.transform(fold)


def test_what_was_not_given(graph: Frames, fitted: GNNClassificationModel) -> None:
    vertices, edges = graph
    with pytest.raises(lotan.ConfigurationError, match=r"there are no edges: give them by setEdges"):
        GNNClassifier(**QUICK).fit(vertices)
    with pytest.raises(lotan.ConfigurationError, match=r"edges is 3; expected a Spark DataFrame"):
        GNNClassifier(**QUICK).setEdges(3)
    with pytest.raises(lotan.GraphError, match=r"edges: there is no column 'from'.*src, dst"):
        GNNClassifier(srcCol="from", **QUICK).setEdges(edges).fit(vertices)
    with pytest.raises(lotan.ModelError, match=r"holds no model: fit an estimator"):
        GNNClassificationModel().setEdges(edges).transform(vertices)
    with pytest.raises(lotan.ConfigurationError, match=r"has no Param hidden; there are .*hiddenChannels"):
        GNNClassifier(hidden=3)
    with pytest.raises(lotan.ConfigurationError, match=r"unknown model 'transformer'; give one of gcn"):
        GNNClassifier(modelType="transformer", **QUICK).setEdges(edges).fit(vertices)
    with pytest.raises(lotan.ConfigurationError, match=r"unknown engine 'gpu'"):
        GNNClassifier(engine="gpu").setEdges(edges).fit(vertices)
    for name in ("numClasses", "maxModels"):
        with pytest.raises(lotan.ConfigurationError, match=rf"{name} is 0; expected at least 1"):
            GNNClassifier(**{name: 0}, **QUICK).setEdges(edges).fit(vertices)
    with pytest.raises(TypeError, match=r"hiddenChannels"):
        GNNClassifier(hiddenChannels="wide")
    with pytest.raises(lotan.ModelError, match=r"the model's factory failed with in_channels=6.*KeyError"):
        GNNClassifier(**QUICK).setModelFactory(lambda in_channels: {}["x"]).setEdges(edges).fit(vertices)


def test_a_label_that_the_model_has_not_seen(graph: Frames, fitted: GNNClassificationModel) -> None:
    vertices, _ = graph
    with pytest.raises(lotan.GraphError, match=r"dataset.label: there is a label 3, and the model knows 3 classes"):
        fitted.transform(vertices.withColumn("label", F.col("label") + 1))
    few = GNNClassifier(numClasses=2, **QUICK).setGraph(fitted._given)
    with pytest.raises(lotan.GraphError, match=r"label"):
        few.fit(vertices)


def test_a_dataset_that_cannot_be_predicted(graph: Frames, fitted: GNNClassificationModel) -> None:
    vertices, _ = graph
    with pytest.raises(lotan.GraphError, match=r"dataset.id: 1 ids that are not among all vertices"):
        fitted.transform(vertices.withColumn("id", F.col("id") + 1).drop("features"))
    with pytest.raises(lotan.ConfigurationError, match=r"already has the columns probability"):
        fitted.transform(vertices.withColumn("probability", F.lit(1.0)))
    with pytest.raises(lotan.ConfigurationError, match=r"dataset is"):
        fitted.transform(vertices.toPandas())


def test_a_saved_model_of_another_kind_or_version(fitted: GNNClassificationModel, tmp_path: Path) -> None:
    path = tmp_path / "model"
    fitted.save(str(path))
    with pytest.raises(lotan.ModelError, match=r"holds a lotan.ml.classification.GNNClassificationModel, no "):
        GNNRegressionModel.load(str(path))
    with pytest.raises(lotan.ModelError, match=r"the model cannot be saved: .*already exists"):
        fitted.save(str(path))
    fitted.write().overwrite().save(str(path))
    _edit(path, {"lotan": {"format": 2, "version": "9.1"}})
    with pytest.raises(lotan.ModelError, match=r"saved by lotan 9.1 in format 2; this is lotan .* reads format 1"):
        GNNClassificationModel.load(str(path))
    with pytest.raises(lotan.ModelError, match=r"the model cannot be read"):
        GNNRegressor.load(str(tmp_path / "nothing"))


@pytest.mark.parametrize("damage", [{"lotan": "x"}, {"paramMap": {"foo": 1}}, {"paramMap": {"lr": "x"}}, None], ids=str)
def test_a_saved_model_whose_metadata_are_damaged(
    fitted: GNNClassificationModel, tmp_path: Path, damage: dict[str, Any] | None
) -> None:
    path = tmp_path / "model"
    fitted.save(str(path))
    _edit(path, damage or {})
    if damage is None:  # cut short
        next((path / "metadata").glob("part-*")).write_text("{")
    with pytest.raises(lotan.ModelError, match=r"model cannot be read: its metadata are damaged \("):
        GNNClassificationModel.load(str(path))


def test_two_columns_of_one_name(graph: Frames, fitted: GNNClassificationModel) -> None:
    vertices, edges = graph
    wrong = r"predictionCol and probabilityCol are both 'probability'; give them different names"
    with pytest.raises(lotan.ConfigurationError, match=wrong):
        GNNClassifier(predictionCol="probability", **QUICK).setEdges(edges).fit(vertices)
    with pytest.raises(lotan.ConfigurationError, match=wrong):
        fitted.copy().setPredictionCol("probability").transform(vertices)


def test_streams_and_texts(graph: Frames, fitted: GNNClassificationModel, spark: Any) -> None:
    vertices, _ = graph
    stream = spark.readStream.format("rate").load()
    with pytest.raises(lotan.ConfigurationError, match="edges is a stream"):
        GNNClassifier(**QUICK).setEdges(stream)
    with pytest.raises(lotan.GraphError, match=r"dataset.label: is of type string"):
        fitted.transform(vertices.withColumn("label", F.lit("a")))


def _edit(path: Path, change: dict[str, Any]) -> None:
    """Write other metadata, and take Hadoop's checksum of the first ones away."""
    part = next((path / "metadata").glob("part-*"))
    part.write_text(json.dumps({**json.loads(part.read_text()), **change}))
    (part.parent / f".{part.name}.crc").unlink()
