"""Estimators and their models against the Trainer with the same masks, on the local engine."""

from __future__ import annotations

import gc
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch_geometric.nn as pyg
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import OneVsRest
from pyspark.ml.feature import StringIndexer, VectorAssembler
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lotan
from lotan.errors import ConfigurationError, ModelError
from lotan.ml import GNNClassifier, GNNRegressor
from lotan.ml.rows import training_rows
from lotan.ml.tables import training_graph, whole_graph
from lotan.results.run import Run
from tests.ml.graphs import CLASSES, VERTICES, WIDTH, tables

pytestmark = pytest.mark.spark

Frames = tuple[DataFrame, DataFrame]
QUICK: dict[str, Any] = {"engine": "local", "epochs": 5, "hiddenChannels": 8}


def by_trainer(train: pd.Series[bool] | None = None, label: str = "label", **options: Any) -> Run:
    """What the Trainer makes of these training vertices; None: of the column `split`."""
    vertices, edges = tables()
    outputs = CLASSES if label == "label" else 1
    if train is not None:
        vertices["split"] = np.where(train, "train", None)
    vertices["label"] = vertices[label].astype("int64" if label == "label" else "float32")
    torch.manual_seed(0)
    model = lotan.nn.GCN(WIDTH, 8, 2, outputs, dropout=0.5)
    optimizer = lotan.Adam(lr=0.01, weight_decay=5e-4)
    settings = {"engine": "local", "epochs": 5, "optimizer": optimizer, "progress": False, **options}
    return lotan.Trainer(model, lotan.Graph(vertices, edges), **settings).fit()


def same_weights(first: Any, second: Any) -> bool:
    """Bit for bit."""
    return all(torch.equal(tensor, second.weights[name]) for name, tensor in first.weights.items())


def test_a_part_of_the_vertices_trains_what_the_trainer_would(graph: Frames) -> None:
    vertices, edges = graph
    classifier = GNNClassifier(**QUICK).setEdges(edges).setVertices(vertices.select("id", "features"))
    model = classifier.fit(vertices.where("fold = 0"))
    run = by_trainer(tables()[0]["fold"] == 0)
    assert same_weights(model.trained, run.model)
    assert model.summary.history[-1]["loss"] == run.history[-1]["loss"]
    found = model.transform(vertices.where("fold = 1").drop("features")).toPandas().set_index("id").sort_index()
    expected = run.predict().set_index("id").loc[found.index]
    assert found["prediction"].tolist() == expected["prediction"].tolist()
    for vector, row in zip(found["probability"], expected["probability"], strict=True):
        np.testing.assert_array_equal(vector.toArray(), row)
    assert all(
        vector.toArray().argmax() == p for vector, p in zip(found["rawPrediction"], found["prediction"], strict=True)
    )
    assert {"label", "target", "split", "fold"} < set(found.columns)


@pytest.mark.parametrize("kind", ["vector", "array<double>"])
def test_features_of_every_type_are_the_same_features(graph: Frames, kind: str) -> None:
    vertices, edges = graph
    typed = array_to_vector("features") if kind == "vector" else F.col("features").cast(kind)
    model = GNNClassifier(splitCol="split", **QUICK).setEdges(edges).fit(vertices.withColumn("features", typed))
    assert same_weights(model.trained, by_trainer().model)
    assert model.summary.best_epoch == by_trainer().best_epoch  # of the vertices in val


def test_a_regressor_is_a_trainer_too(graph: Frames) -> None:
    vertices, edges = graph
    regressor = GNNRegressor(labelCol="target", splitCol="split", **QUICK).setEdges(edges)
    model = regressor.fit(vertices)
    run = by_trainer(label="target")
    assert same_weights(model.trained, run.model)
    found = model.transform(vertices).orderBy("id").toPandas()["prediction"]
    np.testing.assert_array_equal(found, np.stack(run.predict()["prediction"])[:, 0].astype(np.float64))


def test_a_pipeline_with_names_of_its_own_is_saved_and_loaded(
    graph: Frames, spark: SparkSession, tmp_path: Any
) -> None:
    vertices, edges = graph
    named = vertices.select(
        F.col("id").alias("key"),
        F.concat(F.lit("class "), F.col("label")).alias("kind"),
        *(F.col("features")[place].alias(f"f{place}") for place in range(WIDTH)),
    )
    edges.withColumnsRenamed({"src": "from", "dst": "to"}).createOrReplaceTempView("ml_edges")
    indexer = StringIndexer(inputCol="kind", outputCol="index", stringOrderType="alphabetAsc")
    assembler = VectorAssembler(inputCols=[f"f{place}" for place in range(WIDTH)], outputCol="row")
    own = GNNClassifier(idCol="key", featuresCol="row", labelCol="index", srcCol="from", dstCol="to", **QUICK)
    pipeline = Pipeline(stages=[indexer, assembler, own.setEdges("ml_edges")])
    pipeline.write().save(str(tmp_path / "pipeline"))
    model = Pipeline.load(str(tmp_path / "pipeline")).fit(named)
    assert same_weights(model.stages[-1].trained, by_trainer(tables()[0]["fold"] >= 0).model)
    model.write().save(str(tmp_path / "model"))
    loaded = PipelineModel.load(str(tmp_path / "model"))
    assert not loaded.stages[-1].hasSummary
    assert loaded.stages[-1].getHiddenChannels() == 8
    before, after = (one.transform(named).orderBy("key").toPandas() for one in (model, loaded))
    pd.testing.assert_frame_equal(before, after)
    spark.catalog.dropTempView("ml_edges")


def test_a_name_takes_the_place_of_a_table_and_a_table_that_of_a_name(graph: Frames) -> None:
    vertices, edges = graph
    classifier = GNNClassifier(**QUICK).setEdges(edges)
    classifier.setParams(edges="nobody_made_this")
    with pytest.raises(lotan.GraphError, match="edges='nobody_made_this' names no table or view"):
        classifier.fit(vertices)
    assert not classifier.setEdges(edges).isSet("edges")
    assert classifier.fit(vertices.withColumn("split", F.lit("train"))).numFeatures == WIDTH


def test_names_of_columns_may_hold_dots_and_backticks(graph: Frames) -> None:
    vertices, edges = graph
    odd = {"id": "the.id", "features": "`f`", "label": "la`bel", "split": "s p"}
    names = {"idCol": "the.id", "featuresCol": "`f`", "labelCol": "la`bel", "splitCol": "s p"}
    classifier = GNNClassifier(**names, srcCol="`src", dstCol="dst`", **QUICK)
    classifier.setEdges(edges.withColumnsRenamed({"src": "`src", "dst": "dst`"}))
    model = classifier.fit(vertices.withColumnsRenamed(odd))
    assert same_weights(model.trained, by_trainer().model)
    assert model.transform(vertices.withColumnsRenamed(odd)).columns[:4] == ["the.id", "`f`", "la`bel", "target"]


def test_a_graphframe_and_a_module_of_ones_own(graph: Frames, tmp_path: Any) -> None:
    vertices, edges = graph
    made: dict[str, int] = {}

    def factory(in_channels: int, hidden_channels: int, out_channels: int) -> torch.nn.Module:
        made.update(in_channels=in_channels, hidden_channels=hidden_channels, out_channels=out_channels)
        return lotan.nn.GraphSAGE(in_channels, hidden_channels, 1, out_channels)

    classifier = GNNClassifier(**{**QUICK, "epochs": 40}).setModelFactory(factory)
    model = classifier.fit(SimpleNamespace(vertices=vertices, edges=edges))
    assert made == {"in_channels": WIDTH, "hidden_channels": 8, "out_channels": CLASSES}
    assert model.transform(vertices).where("prediction = label").count() > 30
    again = model.transform(SimpleNamespace(vertices=vertices, edges=edges))
    assert again.where("prediction = label").count() == model.transform(vertices).where("prediction = label").count()
    with pytest.raises(lotan.ConfigurationError, match="cannot be saved"):
        classifier.save(str(tmp_path / "estimator"))
    model.save(str(tmp_path / "model"))


@pytest.mark.nightly
@pytest.mark.parametrize("what", ["vertices", "edges"])
def test_a_view_that_was_replaced_is_read_again(graph: Frames, spark: SparkSession, what: str) -> None:
    """By the next fit and the next transform; what was given as a DataFrame stays as it is."""
    vertices, edges = graph
    before = {"vertices": vertices.select("id", "features"), "edges": edges}
    other = {
        "vertices": vertices.select("id", F.transform("features", lambda x: -x).alias("features")),
        "edges": edges.select(F.col("dst").alias("src"), (F.col("src") * 7 % VERTICES).alias("dst")),
    }
    rows = vertices.drop("features")
    before[what].createOrReplaceTempView(f"ml_{what}")
    classifier = GNNClassifier(**QUICK).setEdges(edges).setVertices(before["vertices"])
    named = classifier.copy()._give(what, f"ml_{what}")
    model = named.fit(rows)
    assert same_weights(model.trained, classifier.fit(rows).trained)
    first = model.transform(rows).orderBy("id").toPandas()
    other[what].createOrReplaceTempView(f"ml_{what}")
    given = classifier.copy()._give(what, other[what])
    assert same_weights(named.fit(rows).trained, given.fit(rows).trained)
    assert not same_weights(model.trained, given.fit(rows).trained)
    second = model.transform(rows).orderBy("id").toPandas()
    expected = model.copy()._give(what, other[what]).transform(rows).orderBy("id").toPandas()
    pd.testing.assert_frame_equal(second, expected)
    assert (first["rawPrediction"] != second["rawPrediction"]).any()
    spark.catalog.dropTempView(f"ml_{what}")


@pytest.mark.slow
@pytest.mark.nightly
def test_predictions_on_rows_leave_nothing_behind(graph: Frames, spark: SparkSession) -> None:
    """They live in Spark's storage, until nothing refers to them."""
    vertices, edges = graph
    before = set(spark.sparkContext._jsc.getPersistentRDDs())  # perhaps of other files
    model = GNNClassifier(**QUICK).setEdges(edges).setVertices(vertices).fit(vertices.where("fold = 0"))
    local = model.transform(vertices).orderBy("id").toPandas()
    on_rows = model.copy().setParams(engine="rows", partitions=2, workers=1)
    found = on_rows.transform(vertices)
    rows = found.orderBy("id").toPandas()
    assert rows["prediction"].tolist() == local["prediction"].tolist()
    for ours, theirs in zip(rows["rawPrediction"], local["rawPrediction"], strict=True):
        np.testing.assert_allclose(ours.toArray(), theirs.toArray(), rtol=1e-4, atol=1e-5)
    del model, on_rows, found
    gc.unfreeze()  # objects of before this file may refer to the frame, and be garbage themselves
    deadline = time.monotonic() + 60
    while not before.issuperset(spark.sparkContext._jsc.getPersistentRDDs()):
        assert time.monotonic() < deadline
        gc.collect()
        spark._jvm.System.gc()
        threading.Event().wait(0.1)


def test_masks_are_the_same_in_spark_as_collected(graph: Frames) -> None:
    vertices, edges = graph
    estimator = (
        GNNClassifier(splitCol="split", weightCol="target")
        .setEdges(edges)
        .setVertices(vertices.select("id", "features"))
    )
    rows = training_rows(estimator, vertices.where("fold = 0"), classes=True)
    whole = whole_graph(estimator, estimator._given, vertices)
    with training_graph(estimator, whole, rows) as in_spark:
        one = in_spark.arrays()
    with training_graph(estimator.setEngine("local"), whole, rows) as collected:
        other = collected.arrays()
    for name in ("ids", "features", "label", "split", "vertex_weight", "src", "dst"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    assert set(one.split) == {-1, 0, 1}


class OfPyg(torch.nn.Module):
    """A model of PyG that reads attributes and types of edges."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first = pyg.GATv2Conv(in_channels, 4, edge_dim=2)
        self.second = pyg.RGCNConv(4, out_channels, num_relations=2)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any, edge_type: Any) -> Any:
        return self.second(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_type)


def test_a_model_of_pyg_reads_attributes_and_types_of_edges(graph: Frames) -> None:
    (vertices, given), (rows, _) = graph, tables()
    attributes = F.array((F.col("src") % 5 / 5).cast("float"), (F.col("dst") % 3).cast("float"))
    edges = given.select(F.col("src").alias("from"), "dst", attributes.alias("how"), (F.col("src") % 2).alias("kind"))
    names = {"srcCol": "from", "edgeFeaturesCol": "how", "edgeTypeCol": "kind"}
    classifier = (
        GNNClassifier(engine="local", epochs=3, splitCol="split", **names).setEdges(edges).setModelFactory(OfPyg)
    )
    with pytest.raises(ModelError, match=r"asks for 'edge_attr'.* the Param edgeFeaturesCol"):
        GNNClassifier(engine="local", srcCol="from").setEdges(edges).setModelFactory(OfPyg).fit(vertices)
    model = classifier.fit(vertices)
    torch.manual_seed(0)
    options = {"src": "from", "edge_features": "how", "edge_type": "kind"}
    run = lotan.Trainer(
        OfPyg(WIDTH, CLASSES),
        lotan.Graph(rows.astype({"label": "int64"}), edges.toPandas(), **options),
        engine="local",
        epochs=3,
        optimizer=lotan.Adam(lr=0.01, weight_decay=5e-4),
        progress=False,
    ).fit()
    assert same_weights(model.trained, run.model)
    found = model.transform(vertices).toPandas().sort_values("id")["prediction"]
    assert found.tolist() == run.predict()["prediction"].tolist()
    whole = whole_graph(classifier, classifier._given, vertices)
    with training_graph(classifier.setEngine("blocks"), whole, training_rows(classifier, vertices, True)) as in_spark:
        one, other = in_spark.arrays(), whole.arrays()
        np.testing.assert_array_equal(one.edge_attr, other.edge_attr)
        np.testing.assert_array_equal(one.edge_type, other.edge_type)


def test_weights_of_rows_are_those_of_vertices(graph: Frames) -> None:
    vertices, edges = graph
    weighted = vertices.where("fold = 0").withColumn("weight", F.col("id") % 3)
    classifier = GNNClassifier(**QUICK, weightCol="weight").setEdges(edges)
    model = classifier.setVertices(vertices.select("id", "features")).fit(weighted)
    pandas, pandas_edges = tables()
    pandas["split"] = np.where(pandas["fold"] == 0, "train", None)
    pandas["vertex_weight"], pandas["label"] = pandas["id"] % 3, pandas["label"].astype("int64")
    torch.manual_seed(0)
    module = lotan.nn.GCN(WIDTH, 8, 2, CLASSES, dropout=0.5)
    optimizer = lotan.Adam(lr=0.01, weight_decay=5e-4)
    settings: dict[str, Any] = {"engine": "local", "epochs": 5, "optimizer": optimizer, "progress": False}
    run = lotan.Trainer(module, lotan.Graph(pandas, pandas_edges), **settings).fit()
    assert same_weights(model.trained, run.model)
    assert model.trained.loss.vertex_weights


def test_one_vs_rest_is_refused_in_its_own_words(graph: Frames) -> None:
    vertices, edges = graph
    classifier = GNNClassifier(**QUICK).setEdges(edges).setVertices(vertices.select("id", "features"))
    with pytest.raises(ConfigurationError, match="GNNClassifier tells any number of classes apart without OneVsRest"):
        OneVsRest(classifier=classifier).fit(vertices)


def test_loss_weights_and_schedule_are_those_of_the_trainer(graph: Frames) -> None:
    vertices, edges = graph
    texts = {"loss": "focal(gamma=1.5)", "classWeights": "1=3,0=0.5", "lrScheduler": "StepLR(step_size=2)"}
    classifier = GNNClassifier(**QUICK, **texts, clipGradNorm=0.1).setEdges(edges)
    classifier = classifier.setVertices(vertices.select("id", "features"))
    model = classifier.fit(vertices.where("fold = 0"))
    run = by_trainer(
        tables()[0]["fold"] == 0,
        loss="focal(gamma=1.5)",
        class_weights={1: 3.0, 0: 0.5},
        lr_scheduler="StepLR(step_size=2)",
        clip_grad_norm=0.1,
    )
    assert same_weights(model.trained, run.model)
    with pytest.raises(ConfigurationError, match="class weights are 'x'"):
        classifier.setClassWeights("x").fit(vertices.where("fold = 0"))


def test_two_classes_with_one_output(graph: Frames) -> None:
    vertices, edges = graph
    two = vertices.withColumn("label", F.least("label", F.lit(1)))
    classifier = GNNClassifier(**QUICK, loss="bce_with_logits").setEdges(edges)
    rows = classifier.setVertices(vertices.select("id", "features")).fit(two).transform(two).toPandas()
    raw, shares = (np.stack([row.toArray() for row in rows[name]]) for name in ("rawPrediction", "probability"))
    assert raw.shape == shares.shape == (len(rows), 2)
    np.testing.assert_allclose(raw[:, 0], -raw[:, 1])
    np.testing.assert_allclose(shares[:, 1], 1 / (1 + np.exp(-raw[:, 1])), rtol=1e-5)
    assert np.array_equal(rows["prediction"], (raw[:, 1] > 0).astype(float))


def test_thresholds_divide_the_probabilities(graph: Frames) -> None:
    """As in Spark's own classifiers, in a model that copies them from its estimator."""
    vertices, edges = graph
    classifier = GNNClassifier(**QUICK, thresholds=[0.9, 0.5, 0.1]).setEdges(edges)
    model = classifier.setVertices(vertices.select("id", "features")).fit(vertices)
    for thresholds in ([0.9, 0.5, 0.1], [0.3, 0.0, 0.3]):
        rows = model.setThresholds(thresholds).transform(vertices).toPandas()
        shares = np.stack([row.toArray() for row in rows["probability"]])
        with np.errstate(divide="ignore"):
            assert np.array_equal(rows["prediction"], (shares / thresholds).argmax(axis=1)), thresholds
    for wrong in ([0.5, 0.5], [-1.0, 0.5, 0.5], [0.0, 0.0, 1.0]):
        with pytest.raises(ConfigurationError, match="expected 3 numbers, one for each class"):
            model.setThresholds(wrong).transform(vertices)
    with pytest.raises(ConfigurationError, match="expected 3 numbers"):
        classifier.setThresholds([0.5]).fit(vertices)
