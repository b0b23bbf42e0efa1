"""The predictor of links against the Trainer on the same links: weights, scores, grids, and what is saved."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.tuning import ParamGridBuilder, TrainValidationSplit
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lotan
from lotan.hosts.jar import JAR
from lotan.ml import GNNLinkPredictionModel, GNNLinkPredictor
from tests.links.graphs import WIDTH, columns
from tests.ml.test_estimators import same_weights
from tests.results.test_links_in_spark import forbid_rows, persisted, wait_for_release

pytestmark = pytest.mark.spark

HELD = columns(5, vertices=30, edges=120)
QUICK: dict[str, Any] = {"epochs": 2, "hiddenChannels": 6, "modelType": "sage", "negatives": 9, "decoder": "distmult"}
NAMES = {"relationCol": "relation", "splitCol": "split"}


@pytest.fixture(scope="module")
def vertices(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(pd.DataFrame({"id": range(30), "features": list(HELD["features"])})).coalesce(1)


@pytest.fixture(scope="module")
def links(spark: SparkSession) -> DataFrame:
    split = np.array(["train", "val", "test"])[HELD["edge_split"]]
    table = pd.DataFrame({"src": HELD["src"], "dst": HELD["dst"], "split": split, "relation": HELD["relation"]})
    return spark.createDataFrame(table).coalesce(1)


def by_trainer(decoder: str = "distmult", lr: float = 0.01, **options: Any) -> Any:
    torch.manual_seed(0)
    model = lotan.nn.GraphSAGE(WIDTH, 6, 2, 6, dropout=0.5)
    task = lotan.LinkPrediction(decoder=decoder, negatives=9)
    optimizer = lotan.Adam(lr=lr, weight_decay=5e-4)
    settings = {"task": task, "optimizer": optimizer, "epochs": 2, "progress": False, **options}
    return lotan.Trainer(model, lotan.Graph.from_arrays(**HELD), **settings).fit()


def test_it_is_a_trainer_whose_models_are_saved_and_score_in_spark(
    vertices: DataFrame, links: DataFrame, tmp_path: Any
) -> None:
    predictor = GNNLinkPredictor(batchSize=32, fanouts="3,all", **QUICK, **NAMES).setVertices(vertices)
    predictor.write().save(str(tmp_path / "predictor"))
    again = GNNLinkPredictor.load(str(tmp_path / "predictor"))
    model = again.fit(SimpleNamespace(vertices=vertices, edges=links))
    run = by_trainer(regime=lotan.MiniBatch(32, (3, "all")))
    assert same_weights(model.trained, run.model)
    assert model.summary.metrics == run.metrics
    pairs = links.withColumn("note", F.lit("kept"))
    found = model.transform(pairs).toPandas()
    assert list(found.columns) == ["src", "dst", "split", "relation", "note", "score"]
    expected = run.predict_links(found[["src", "dst", "relation"]])["score"]
    np.testing.assert_allclose(found["score"], expected.astype(np.float64), rtol=1e-5, atol=1e-6)
    model.write().save(str(tmp_path / "model"))
    loaded = GNNLinkPredictionModel.load(str(tmp_path / "model"))
    with pytest.raises(lotan.ConfigurationError, match="there are no edges: a model that was loaded needs"):
        loaded.transform(pairs)
    loaded = loaded.setVertices(vertices).setEdges(links)
    np.testing.assert_array_equal(loaded.transform(pairs).toPandas()["score"], found["score"])
    for bad, message in (
        (pairs.withColumn("src", F.col("src") + 29), r"dataset.src: \d+ ids that are no vertices"),
        (pairs.withColumn("relation", F.lit("zz")), r"dataset.relation: 120 relations .*'zz'"),
        (pairs.withColumn("dst", F.lit("a")), "dataset.dst: is of type string, expected integers"),
        (pairs.drop("relation"), "dataset: there is no column 'relation'"),
    ):
        with pytest.raises(lotan.GraphError, match=message):
            model.transform(bad)
    with pytest.raises(lotan.ConfigurationError, match="already has the columns score"):
        model.transform(model.transform(pairs))
    with pytest.raises(lotan.ConfigurationError, match="leave setEdges and edges out"):
        predictor.copy().setEdges(links).fit(links)
    with pytest.raises(lotan.GraphError, match="modelType 'sage' reads them"):
        GNNLinkPredictor(**QUICK, **NAMES).fit(links)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")
def test_on_blocks_it_is_the_trainers_too(
    spark: SparkSession, vertices: DataFrame, links: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = persisted(spark)
    predictor = GNNLinkPredictor(batchSize=32, fanouts="3,all", engine="blocks", workers=1, **QUICK, **NAMES)
    maps = ParamGridBuilder().addGrid(predictor.lr, [0.01, 0.05]).build()
    models = predictor.setVertices(vertices).fit(links, maps)
    for model, lr in zip(models, (0.01, 0.05), strict=True):
        run = by_trainer(lr=lr, regime=lotan.MiniBatch(32, (3, "all")))
        for name, tensor in run.model.weights.items():
            torch.testing.assert_close(model.trained.weights[name], tensor, rtol=1e-4, atol=1e-5)
    with monkeypatch.context() as patched:
        forbid_rows(patched)
        scored = model.transform(links)
    found = scored.toPandas()
    expected = run.predict_links(found[["src", "dst", "relation"]])["score"]
    np.testing.assert_allclose(found["score"], expected.astype(np.float64), rtol=1e-3, atol=1e-4)
    del models, model, scored
    wait_for_release(spark, before)


@pytest.mark.nightly
def test_maps_train_in_step_and_each_is_the_trainers(vertices: DataFrame, links: DataFrame) -> None:
    predictor = GNNLinkPredictor(**QUICK, **NAMES).setVertices(vertices)
    grid = ParamGridBuilder().addGrid(predictor.lr, [0.01, 0.1]).addGrid(predictor.decoder, ["dot", "distmult"])
    maps = grid.build()
    for one, model in zip(maps, predictor.fit(links, maps), strict=True):
        run = by_trainer(one[predictor.decoder], one[predictor.lr])
        assert same_weights(model.trained, run.model)
        assert model.getLr() == one[predictor.lr]


@pytest.mark.nightly
def test_rows_are_learned_without_vertices_and_a_validator_chooses_by_negative_pairs(
    links: DataFrame, tmp_path: Any
) -> None:
    others = links.select(F.col("dst").alias("src"), F.col("src").alias("dst"), F.lit(0.0).alias("label"))
    pairs = links.select("src", "dst", F.lit(1.0).alias("label")).union(others)
    predictor = GNNLinkPredictor(
        modelType="lotan.nn:LearnedRows", labelCol="label", hiddenChannels=6, epochs=2, negatives="all", weightDecay=0.0
    )
    evaluator = BinaryClassificationEvaluator(rawPredictionCol="score")
    maps = ParamGridBuilder().addGrid(predictor.dropout, [0.0, 0.5]).build()
    chosen = TrainValidationSplit(
        estimator=predictor, estimatorParamMaps=maps, evaluator=evaluator, trainRatio=0.9, seed=3
    )
    assert len(chosen.fit(pairs).validationMetrics) == 2
    model = predictor.fit(pairs)
    model.write().save(str(tmp_path / "model"))
    loaded = GNNLinkPredictionModel.load(str(tmp_path / "model"))  # has the ids of its rows, and reads no edges
    scores = [one.transform(pairs).orderBy("src", "dst", "label").toPandas()["score"] for one in (model, loaded)]
    np.testing.assert_array_equal(*scores)
