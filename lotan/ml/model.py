"""What both kinds of models are: Transformers that add a prediction to every row of a dataset."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

from pyspark.ml.base import Model
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lotan.errors import ConfigurationError, ModelError
from lotan.graph.frames import quoted
from lotan.ml.given_graph import HasGraph
from lotan.ml.persistence import ModelReader, ModelWriter
from lotan.ml.predictions import predicted
from lotan.ml.rows import check_rows
from lotan.ml.summary import Summary
from lotan.ml.tables import Given, hinted, predicting_graph, require_frame, table, whole_graph
from lotan.results.trained_model import TrainedModel


class GNNModel(Model, HasGraph, MLReadable[Any], MLWritable):
    """The base of `GNNClassificationModel` and `GNNRegressionModel`.

    Predictions are of the graph that the estimator was given, or that the model was: the dataset's rows are looked up
    there. Where no vertices were given, the dataset is all of them.
    """

    def __init__(self, trained: TrainedModel | None = None, given: Given | None = None, summary: Summary | None = None):
        super().__init__()
        self._trained = trained
        self._given = given or self._given
        self._summary = summary
        self._predicted: dict[tuple[Any, ...], DataFrame] = {}  # of all vertices; copies share it

    @property
    def trained(self) -> TrainedModel:
        """The model as data, with its weights: what `lotan.load` gives.

        Raises:
            ModelError: nothing was trained or loaded.
        """
        if self._trained is None:
            raise ModelError(f"this {type(self).__name__} holds no model: fit an estimator, or load one")
        return self._trained

    @property
    def summary(self) -> Summary:
        """How it was trained.

        Raises:
            ModelError: it was loaded; that is not saved.
        """
        if self._summary is None:
            raise ModelError("a model that was loaded has no summary; look at hasSummary first")
        return self._summary

    @property
    def hasSummary(self) -> bool:
        """Whether it was trained in this session."""
        return self._summary is not None

    @property
    def numFeatures(self) -> int:
        """Width of the features."""
        return self.trained.spec.width

    def write(self) -> ModelWriter:
        """For `model.write().overwrite().save(path)`. The graph is not saved."""
        return ModelWriter(self)

    @classmethod
    def read(cls) -> ModelReader:
        """For `GNNClassificationModel.read().load(path)`."""
        return ModelReader(cls)

    @abstractmethod
    def _added(self, columns: dict[str, Column]) -> dict[str, Column]:
        """Names and columns to add, from those of `predicted`."""

    @abstractmethod
    def _check_labels(self, largest: int) -> None:
        """Refuse labels that the model cannot predict; `largest` is the largest + 1."""

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
            found = self._held(whole)
        joined = dataset.join(found, dataset[quoted(self.value("idCol"))] == found["__id"], "left")
        return joined.select(*(dataset[quoted(name)] for name in dataset.columns), *_aliased(added))

    def _held(self, whole: Any) -> DataFrame:
        """Predictions of all vertices, made once for a graph that stays the same."""
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
