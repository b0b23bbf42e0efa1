"""The base class of all models: it holds a trained model and its graph, and is written and read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Self

from pyspark.ml.base import Model
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame

from lotan.errors import ConfigurationError, ModelError
from lotan.ml.given_graph import HasGraph
from lotan.ml.persistence import ModelReader, ModelWriter
from lotan.ml.summary import Summary
from lotan.ml.tables import Given
from lotan.results.trained_model import TrainedModel


class HeldModel(Model, HasGraph, MLReadable[Any], MLWritable):
    """The base of all models."""

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
    def _transform_rows(self, dataset: DataFrame) -> DataFrame:
        """Add columns to the rows of a dataset."""

    def _give(self, what: str, value: DataFrame | str) -> Self:
        self._predicted = {}
        return super()._give(what, value)

    def _transform(self, dataset: Any) -> DataFrame:
        whole, rows = self._around(dataset)
        return whole._transform_rows(rows)


def check_new(added: Iterable[str], dataset: DataFrame) -> None:
    """Check that a dataset does not have the columns yet which are added to it.

    Raises:
        ConfigurationError: it has. The error names them.
    """
    there = [name for name in added if name in dataset.columns]
    if there:
        raise ConfigurationError(
            f"the dataset already has the columns {', '.join(there)}: drop them, or set other names by predictionCol and its like"
        )
