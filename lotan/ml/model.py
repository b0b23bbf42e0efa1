"""The base class of the models. They are Transformers that add a prediction to every row of a dataset."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

from pyspark.ml.base import Model
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lotan.errors import ConfigurationError, ModelError
from lotan.graph.spark_names import quoted
from lotan.ml.given_graph import HasGraph
from lotan.ml.persistence import ModelReader, ModelWriter
from lotan.ml.predictions import predicted
from lotan.ml.rows import check_rows
from lotan.ml.summary import Summary
from lotan.ml.tables import Given, hinted, predicting_graph, require_frame, table, whole_graph
from lotan.results.trained_model import TrainedModel


class GNNModel(Model, HasGraph, MLReadable[Any], MLWritable):
    """The base of `GNNClassificationModel` and `GNNRegressionModel`.

    The model predicts all vertices of the graph that was given to the estimator, or to the model itself. The dataset's
    rows are looked up there. If no vertices were given, the dataset has all of them.
    """

    def __init__(self, trained: TrainedModel | None = None, given: Given | None = None, summary: Summary | None = None):
        super().__init__()
        self._trained = trained
        self._given = given or self._given
        self._summary = summary
        self._predicted: dict[
            tuple[Any, ...], DataFrame
        ] = {}  # predictions of all vertices; copies of the model share them

    @property
    def trained(self) -> TrainedModel:
        """The model as data, with its weights, in the form that `lotan.load` returns.

        Raises:
            ModelError: no model was trained or loaded.
        """
        if self._trained is None:
            raise ModelError(f"this {type(self).__name__} holds no model: fit an estimator, or load one")
        return self._trained

    @property
    def summary(self) -> Summary:
        """The history and the metrics of the training.

        Raises:
            ModelError: the model was loaded. A summary is not saved.
        """
        if self._summary is None:
            raise ModelError("a model that was loaded has no summary; look at hasSummary first")
        return self._summary

    @property
    def hasSummary(self) -> bool:
        """True if the model was trained in this session, and so has a summary."""
        return self._summary is not None

    @property
    def numFeatures(self) -> int:
        """The width of the features."""
        return self.trained.spec.width

    def write(self) -> ModelWriter:
        """Return a writer, for `model.write().overwrite().save(path)`. The graph is not saved."""
        return ModelWriter(self)

    @classmethod
    def read(cls) -> ModelReader:
        """Return a reader, for `GNNClassificationModel.read().load(path)`."""
        return ModelReader(cls)

    @abstractmethod
    def _added(self, columns: dict[str, Column]) -> dict[str, Column]:
        """Return the columns to add by their names, made of the columns of `predicted`."""

    @abstractmethod
    def _check_labels(self, largest: int) -> None:
        """Refuse labels that the model cannot predict. `largest` is the largest label + 1."""

    def _give(self, what: str, value: DataFrame | str) -> Self:
        self._predicted = {}
        return super()._give(what, value)

    def _transform(self, dataset: Any) -> DataFrame:
        whole, rows = self._around(dataset)
        return whole._transform_rows(rows)

    def _transform_rows(self, dataset: DataFrame) -> DataFrame:
        require_frame("dataset", dataset)
        self.check_outputs()
        added = self._added({name: F.col(f"__{name}") for name in ("raw", "probability", "prediction")})
        _check_new(added, dataset)
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


def _check_new(added: dict[str, Column], dataset: DataFrame) -> None:
    there = [name for name in added if name in dataset.columns]
    if there:
        raise ConfigurationError(
            f"the dataset already has the columns {', '.join(there)}: drop them, or set predictionCol and its like"
        )
