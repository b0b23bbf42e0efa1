"""What both estimators are: Params and tables in, models out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import torch
from pyspark.ml.base import Estimator
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame

from lotan.errors import ConfigurationError
from lotan.graph import Graph
from lotan.ml.model import GNNModel
from lotan.ml.modules import Factory, make_module, make_optimizer
from lotan.ml.params import GNNParams
from lotan.ml.persistence import EstimatorReader, EstimatorWriter
from lotan.ml.rows import check_rows, training_rows
from lotan.ml.summary import Summary
from lotan.ml.tables import Given, hinted, require_frame, table, training_graph, whole_graph
from lotan.trained_model import TrainedModel
from lotan.trainer import Trainer
from planner.spec import Task

M = TypeVar("M", bound=GNNModel)


@dataclass(frozen=True)
class Prepared:
    """What a dataset trains: settled before the first epoch."""

    graph: Graph
    given: Given
    outputs: int  # classes, or 1


class GNNEstimator(Estimator[M], GNNParams, MLReadable[Any], MLWritable, Generic[M]):
    """The base of `GNNClassifier` and `GNNRegressor`."""

    task: Task

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self._given = Given()
        self._factory: Factory | None = None
        self.setParams(**params)

    def setEdges(self, edges: DataFrame | str) -> Self:
        """Give the edges: a DataFrame, which is not saved with the estimator, or the name of a table or view."""
        return self._give("edges", edges)

    def setVertices(self, vertices: DataFrame | str) -> Self:
        """Give all vertices, with features: a dataset to fit is then a part of them. A DataFrame, or a name."""
        return self._give("vertices", vertices)

    def setGraph(self, graph: Any) -> Self:
        """Give all vertices and the edges: a GraphFrame, or anything that has these two DataFrames."""
        return self.setVertices(graph.vertices).setEdges(graph.edges)

    def setModelFactory(self, factory: Factory) -> Self:
        """Train a model of one's own instead of a stock one.

        Args:
            factory: called with those of in_channels, hidden_channels, num_layers, out_channels, dropout and heads that it
                has parameters for; returns a `torch.nn.Module`. It is code, so an estimator with one is not saved; its
                models are.
        """
        self._factory = factory
        return self

    def write(self) -> EstimatorWriter:
        """For `estimator.write().overwrite().save(path)`."""
        if self._factory is not None:
            raise ConfigurationError(
                "an estimator with a model factory cannot be saved, for it is code; its models can"
            )
        return EstimatorWriter(self)

    @classmethod
    def read(cls) -> EstimatorReader:
        """For `GNNClassifier.read().load(path)`."""
        return EstimatorReader(cls)

    @abstractmethod
    def _outputs(self, dataset: DataFrame, largest: int) -> int:
        """Width of the model's output; `largest` is the largest label + 1."""

    @abstractmethod
    def _new_model(self, trained: TrainedModel, given: Given, summary: Summary) -> M:
        """A model of the kind that this estimator makes."""

    def _give(self, what: str, value: DataFrame | str) -> Self:
        if isinstance(value, str):
            self._given = replace(self._given, **{what: None}, made={})
            return self._set(**{what: value})
        require_frame(what, value)
        self.clear(self.getParam(what))
        self._given = replace(self._given, **{what: value}, made={})
        return self

    def _fit(self, dataset: Any) -> M:
        if not isinstance(dataset, DataFrame) and hasattr(dataset, "vertices"):
            whole = self.copy()
            whole._given = Given(edges=dataset.edges)
            return whole._fit(dataset.vertices)
        with self._prepared(dataset) as prepared:
            run = Trainer(
                self._module(prepared),
                prepared.graph,
                optimizer=make_optimizer(self),
                epochs=self.value("epochs"),
                patience=self.value("patience"),
                seed=self.value("seed"),
                task=self.task,
                **self.options(),
            ).fit()
        return self._model_of(run.model, prepared, Summary.of(run))

    @contextmanager
    def _prepared(self, dataset: DataFrame) -> Iterator[Prepared]:
        """The graph that a dataset trains, as long as the block lasts.

        Raises:
            ConfigurationError: no edges, a dataset that is no DataFrame, an option that cannot be used.
            GraphError: tables that make no graph to train on.
        """
        require_frame("dataset", dataset)
        self.config()
        classes = self.task == "classification"
        rows = training_rows(self, dataset, classes)
        whole = whole_graph(self, self._given, dataset)
        part = table(self._given.vertices, self.value("vertices")) is not None
        largest = check_rows(self, dataset, whole, part, classes)
        with hinted(self, self._given), training_graph(self, whole, rows) as graph:
            yield Prepared(graph, self._given, self._outputs(dataset, largest))

    def _module(self, prepared: Prepared) -> torch.nn.Module:
        return make_module(self, self._factory, prepared.graph.statistics.width, prepared.outputs)

    def _model_of(self, trained: TrainedModel, prepared: Prepared, summary: Summary) -> M:
        return self._copyValues(self._new_model(trained, prepared.given, summary)._resetUid(self.uid))
