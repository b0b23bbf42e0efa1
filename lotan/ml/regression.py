"""The regressor of vertices."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame

from lotan.ml.estimator import GNNEstimator
from lotan.ml.model import GNNModel
from lotan.ml.summary import Summary
from lotan.ml.tables import Given
from lotan.results.trained_model import TrainedModel


class GNNRegressionModel(GNNModel):
    """A trained regressor. It adds the column `prediction` (double)."""

    def _added(self, columns: dict[str, Column]) -> dict[str, Column]:
        return {self.value("predictionCol"): columns["prediction"]}

    def _check_labels(self, largest: int) -> None:
        """Accept all labels, because any number can be compared with a prediction."""


class GNNRegressor(GNNEstimator[GNNRegressionModel]):
    """Trains a graph neural network that predicts a number for each vertex. The loss is the mean squared error.

    Args:
        params: Params by name. `explainParams()` lists them with their defaults.

    Raises:
        ConfigurationError: a Param is unknown.
    """

    task = "regression"

    def _outputs(self, dataset: DataFrame, largest: int) -> int:
        return 1

    def _new_model(self, trained: TrainedModel, given: Given, summary: Summary) -> GNNRegressionModel:
        return GNNRegressionModel(trained, given, summary)
