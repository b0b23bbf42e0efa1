"""The base class of the models. They are Transformers that add a prediction to every row of a dataset."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lotan.graph.spark_names import quoted
from lotan.ml.held_model import HeldModel, check_new
from lotan.ml.params import GNNParams
from lotan.ml.predictions import predicted
from lotan.ml.rows import check_rows
from lotan.ml.tables import hinted, predicting_graph, require_frame, table, whole_graph


class GNNModel(HeldModel, GNNParams):
    """The base of `GNNClassificationModel` and `GNNRegressionModel`.

    The model predicts all vertices of the graph that was given to the estimator, or to the model itself. The dataset's
    rows are looked up there. If no vertices were given, the dataset has all of them.
    """

    @abstractmethod
    def _added(self, columns: dict[str, Column]) -> dict[str, Column]:
        """Return the columns to add by their names, made of the columns of `predicted`."""

    @abstractmethod
    def _check_labels(self, largest: int) -> None:
        """Refuse labels that the model cannot predict. `largest` is the largest label + 1."""

    def _transform_rows(self, dataset: DataFrame) -> DataFrame:
        require_frame("dataset", dataset)
        self.check_outputs()
        added = self._added({name: F.col(f"__{name}") for name in ("raw", "probability", "prediction")})
        check_new(added, dataset)
        part = table(self._given.vertices, self, "vertices") is not None
        whole = whole_graph(self, self._given, dataset)
        largest = check_rows(self, dataset, whole, part, classes=self.trained.loss.task == "classification")
        self._check_labels(largest)
        with hinted(self, self._given):
            found = self._predictions(whole)
        joined = dataset.join(found, dataset[quoted(self.value("idCol"))] == found["__id"], "left")
        return joined.select(*(dataset[quoted(name)] for name in dataset.columns), *_aliased(added))

    def _predictions(self, whole: Any) -> DataFrame:
        """Return the predictions of all vertices. They are computed once if the graph stays the same."""
        key = self.key()
        if self._given.lasts and key in self._predicted:
            return self._predicted[key]
        found = predicted(self.trained, predicting_graph(self, whole), self.config(), _session(whole))
        if self._given.lasts:
            self._predicted[key] = found
        return found


def _session(whole: Any) -> Any:
    return whole.tables()[0].sparkSession


def _aliased(added: dict[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in added.items()]
