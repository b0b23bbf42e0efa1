"""Grids: all maps of one fit as a batch of models, with the numbers of separate runs of the Trainer."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.tuning import CrossValidator, CrossValidatorModel, ParamGridBuilder, TrainValidationSplit
from pyspark.sql import DataFrame, SparkSession

import lotan
import lotan.ml.estimator
from lotan.batch.model_batch import ModelBatch
from lotan.ml import GNNClassifier
from tests.ml.graphs import CLASSES, WIDTH, tables
from tests.ml.test_estimators import same_weights

pytestmark = pytest.mark.spark

Frames = tuple[DataFrame, DataFrame]
RATES, WIDTHS = (0.01, 0.1), (4, 8)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many models each batch was made of."""
    made: list[int] = []

    class Counted(ModelBatch):
        def __init__(self, graph: Any, members: Any, **options: Any) -> None:
            made.append(len(members))
            super().__init__(graph, members, **options)

    monkeypatch.setattr(lotan.ml.estimator, "ModelBatch", Counted)
    return made


@pytest.fixture
def evaluator(spark: SparkSession) -> MulticlassClassificationEvaluator:
    return MulticlassClassificationEvaluator(metricName="accuracy")


@pytest.fixture
def classifier(graph: Frames) -> GNNClassifier:
    vertices, edges = graph
    classifier = GNNClassifier(engine="local", epochs=6, numClasses=CLASSES)
    return classifier.setEdges(edges).setVertices(vertices.select("id", "features"))


def alone(train: np.ndarray, lr: float, width: int) -> lotan.results.run.Run:
    """One configuration, by the Trainer."""
    vertices, edges = tables()
    vertices["label"], vertices["split"] = vertices["label"].astype("int64"), np.where(train, "train", None)
    torch.manual_seed(0)
    model = lotan.nn.GCN(WIDTH, width, 2, CLASSES, dropout=0.5)
    optimizer = lotan.Adam(lr=lr, weight_decay=5e-4)
    options = {"engine": "local", "epochs": 6, "optimizer": optimizer, "progress": False}
    return lotan.Trainer(model, lotan.Graph(vertices, edges), **options).fit()


def accuracy(fold: int, lr: float, width: int) -> float:
    """Of one configuration on a fold, trained on the other one."""
    folds, labels = tables()[0]["fold"].to_numpy(), tables()[0]["label"].to_numpy()
    predicted = alone(folds != fold, lr, width).predict()["prediction"].to_numpy()
    return float((predicted == labels)[folds == fold].mean())


@pytest.mark.nightly  # by day: one split
def test_cross_validation_is_separate_runs_with_the_same_masks(
    graph: Frames, classifier: GNNClassifier, evaluator: Any, batches: list[int], tmp_path: Any
) -> None:
    grid = ParamGridBuilder().addGrid(classifier.lr, RATES).addGrid(classifier.hiddenChannels, WIDTHS).build()
    validator = CrossValidator(
        estimator=classifier,
        estimatorParamMaps=grid,
        evaluator=evaluator,
        numFolds=2,
        foldCol="fold",
        parallelism=2,
    )
    found = validator.fit(graph[0])
    assert batches == [4, 4]
    expected = [np.mean([accuracy(fold, lr, width) for fold in (0, 1)]) for lr in RATES for width in WIDTHS]
    assert found.avgMetrics == pytest.approx(expected)
    assert len(set(expected)) > 1
    best = RATES[int(np.argmax(expected)) // 2], WIDTHS[int(np.argmax(expected)) % 2]
    assert same_weights(found.bestModel.trained, alone(np.ones(len(tables()[0]), bool), *best).model)
    found.write().save(str(tmp_path / "validated"))
    loaded = CrossValidatorModel.load(str(tmp_path / "validated"))
    assert loaded.avgMetrics == found.avgMetrics
    assert same_weights(loaded.bestModel.trained, found.bestModel.trained)


def test_a_split_of_the_vertices(graph: Frames, classifier: GNNClassifier, evaluator: Any, batches: list[int]) -> None:
    grid = ParamGridBuilder().addGrid(classifier.modelType, ["gcn", "sage", "gat"]).build()
    validator = TrainValidationSplit(estimator=classifier, estimatorParamMaps=grid, evaluator=evaluator, seed=0)
    found = validator.fit(graph[0])
    assert batches == [3]
    assert len(found.validationMetrics) == 3
    assert found.transform(graph[0]).count() == len(tables()[0])


@pytest.mark.nightly  # by day: tests/tuning
def test_maps_that_cannot_share_passes_train_in_batches_of_their_own(
    graph: Frames, classifier: GNNClassifier, batches: list[int]
) -> None:
    grid = ParamGridBuilder().addGrid(classifier.seed, [0, 1]).addGrid(classifier.evalEvery, [1, 2]).build()
    models = classifier.fit(graph[0], grid)
    assert batches == [2, 2]
    for model, one in zip(models, grid, strict=True):
        assert (model.getSeed(), model.getEvalEvery()) == (one[classifier.seed], one[classifier.evalEvery])
        assert same_weights(model.trained, classifier.fit(graph[0], one).trained)


def test_maps_of_a_graphframe(graph: Frames, batches: list[int]) -> None:
    """Its vertices are all there are, whatever the estimator was told before."""
    vertices, edges = graph
    classifier = GNNClassifier(engine="local", epochs=6, vertices="no_such_table")
    maps = [{classifier.seed: seed} for seed in (0, 1)]
    models = classifier.fit(SimpleNamespace(vertices=vertices, edges=edges), maps)
    assert batches == [2]
    whole = classifier.copy().setEdges(edges)
    whole.clear(whole.vertices)
    expected = whole.fit(vertices, maps)
    assert [same_weights(model.trained, expected[0].trained) for model in models] == [True, False]
    assert same_weights(models[1].trained, expected[1].trained)


def test_a_model_that_diverges_leaves_the_others_alone(graph: Frames, classifier: GNNClassifier) -> None:
    diverging = classifier.copy({classifier.optimizer: "sgd", classifier.weightDecay: 0.0})
    maps = [{diverging.lr: 0.01}, {diverging.lr: 1e38}]
    good, bad = diverging.fit(graph[0], maps)
    assert same_weights(good.trained, diverging.fit(graph[0], maps[0]).trained)
    assert good.summary.diverged is None
    assert "epoch" in bad.summary.diverged
    assert bad.transform(graph[0]).where("prediction is null").count() == 0
    with pytest.raises(lotan.EngineError, match="the loss is"):
        diverging.fit(graph[0], maps[1])
