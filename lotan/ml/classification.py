"""The classifier of vertices."""

from __future__ import annotations

import math
from typing import Any

from pyspark.ml.functions import array_to_vector
from pyspark.ml.param import TypeConverters
from pyspark.ml.param.shared import HasProbabilityCol, HasRawPredictionCol, HasThresholds
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lotan.errors import ConfigurationError, GraphError
from lotan.ml.estimator import GNNEstimator
from lotan.ml.model import GNNModel
from lotan.ml.params import GNNParams, accessors, make_param
from lotan.ml.rows import named_classes
from lotan.ml.summary import Summary
from lotan.ml.tables import Given
from lotan.results.trained_model import TrainedModel
from lotan.settings.class_weights import text_of_weights
from lotan.settings.losses import one_output


@accessors
class _ClassifierParams(GNNParams, HasProbabilityCol, HasRawPredictionCol, HasThresholds):
    numClasses = make_param(
        "numClasses",
        "number of classes; unset: the number in the label's metadata, or else the largest label + 1",
        TypeConverters.toInt,
    )
    classWeights = make_param(
        "classWeights",
        'weights of classes: "balanced", in order as "0.5,2", or by class as "1=10"; a list or a dict becomes such a text; '
        "unset: 1",
        text_of_weights,
    )


class GNNClassificationModel(_ClassifierParams, GNNModel):
    """A trained classifier. It adds the columns `prediction` (double), `probability` and `rawPrediction` (vectors)."""

    def __init__(self, trained: TrainedModel | None = None, given: Given | None = None, summary: Summary | None = None):
        super().__init__(trained, given, summary)

    def _added(self, columns: dict[str, Column]) -> dict[str, Column]:
        added = {
            self.value("rawPredictionCol"): array_to_vector(columns["raw"]),
            self.value("probabilityCol"): array_to_vector(columns["probability"]),
            self.value("predictionCol"): self._prediction(columns),
        }
        return {name: column for name, column in added.items() if name}

    def _prediction(self, columns: dict[str, Column]) -> Column:
        """Return the class of the largest probability, each divided by its threshold if there are thresholds."""
        thresholds = self.value("thresholds")
        if thresholds is None:
            return columns["prediction"]
        check_thresholds(thresholds, self.trained.loss.classes)
        parts = [
            columns["probability"][place] / each if each else F.lit(math.inf) for place, each in enumerate(thresholds)
        ]
        scaled = F.array(*parts)
        return F.when(columns["prediction"].isNotNull(), F.array_position(scaled, F.array_max(scaled)) - 1.0)

    def _check_labels(self, largest: int) -> None:
        known = self.trained.loss.classes
        if largest > known:
            raise GraphError(
                f"dataset.{self.value('labelCol')}: there is a label {largest - 1}, and the model knows {known} classes, from 0. "
                "Set numClasses where it is trained, or drop these rows"
            )


def check_thresholds(thresholds: list[float], classes: int) -> None:
    """Check thresholds as Spark's own classifiers do.

    Raises:
        ConfigurationError: If there is not one for each class, or one is negative or not finite, or more than one is 0.
    """
    allowed = all(math.isfinite(each) and each >= 0 for each in thresholds) and thresholds.count(0.0) <= 1
    if len(thresholds) != classes or not allowed:
        raise ConfigurationError(
            f"thresholds is {thresholds}; expected {classes} numbers, one for each class, above 0, of which one may be 0"
        )


class GNNClassifier(_ClassifierParams, GNNEstimator[GNNClassificationModel]):
    """Trains a graph neural network that predicts the class of each vertex.

    Args:
        params: Params by name. `explainParams()` lists them with their defaults.

    Raises:
        ConfigurationError: a Param is unknown.
    """

    task = "classification"

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)

    def _outputs(self, dataset: DataFrame, largest: int) -> int:
        classes = self.value("numClasses") or named_classes(dataset, self.value("labelCol")) or max(largest, 2)
        if (thresholds := self.value("thresholds")) is not None:
            check_thresholds(thresholds, classes)
        return 1 if one_output(self.value("loss"), "classification", classes) else classes

    def _new_model(self, trained: TrainedModel, given: Given, summary: Summary) -> GNNClassificationModel:
        return GNNClassificationModel(trained, given, summary)
