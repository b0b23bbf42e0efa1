"""The base class of the estimators. They take Params and tables, and train all maps of a grid as one batch of models."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar

import torch
from pyspark.sql import DataFrame

from lotan.batch.members import Member
from lotan.batch.model_batch import ModelBatch
from lotan.graph.graph import Graph
from lotan.ml.grid_estimator import GridEstimator
from lotan.ml.model import GNNModel
from lotan.ml.modules import make_module, training_settings
from lotan.ml.params import GNNParams
from lotan.ml.rows import check_rows, training_rows
from lotan.ml.summary import Summary
from lotan.ml.tables import Given, hinted, require_frame, table, training_graph, whole_graph
from lotan.planning.models import model_outputs
from lotan.results.trained_model import TrainedModel
from lotan.tracing.signature import takes_tensors
from lotan.tracing.trace import trace
from lotan.training.learner import weights_of
from lotan.training.trainer import Trainer
from planner.loss import Task

log = logging.getLogger(__name__)

M = TypeVar("M", bound=GNNModel)


@dataclass(frozen=True)
class Prepared:
    """A dataset as training needs it: the graph around it, and the width of the model's output."""

    graph: Graph
    given: Given
    outputs: int  # classes, or 1


class GNNEstimator(GridEstimator[M], GNNParams, Generic[M]):
    """The base of `GNNClassifier` and `GNNRegressor`."""

    task: Task

    @abstractmethod
    def _outputs(self, dataset: DataFrame, largest: int) -> int:
        """Return the width of the model's output. `largest` is the largest label + 1."""

    @abstractmethod
    def _new_model(self, trained: TrainedModel, given: Given, summary: Summary) -> M:
        """Return a model of this estimator's class of models."""

    def _fit_rows(self, dataset: DataFrame) -> M:
        with self._prepared(dataset) as prepared:
            run = Trainer(
                self._module(prepared),
                prepared.graph,
                task=self.task,
                **training_settings(self),
                **self.options(),
            ).fit()
        return self._model_of(run.model, prepared, Summary.of(run))

    @contextmanager
    def _prepared(self, dataset: DataFrame) -> Iterator[Prepared]:
        """Prepare a dataset for training. The graph is freed at the end of the block.

        Raises:
            ConfigurationError: there are no edges, the dataset is no DataFrame, or an option cannot be used.
            GraphError: the tables make no graph that can be trained on.
        """
        require_frame("dataset", dataset)
        self.check_outputs()
        self.config()
        classes = self.task == "classification"
        rows = training_rows(self, dataset, classes)
        whole = whole_graph(self, self._given, dataset)
        part = table(self._given.vertices, self, "vertices") is not None
        largest = check_rows(self, dataset, whole, part, classes)
        with hinted(self, self._given), training_graph(self, whole, rows) as graph:
            yield Prepared(graph, self._given, self._outputs(dataset, largest))

    def _module(self, prepared: Prepared) -> torch.nn.Module:
        return make_module(self, self._factory, prepared.graph.statistics.width, prepared.outputs)

    def _model_of(self, trained: TrainedModel, prepared: Prepared, summary: Summary) -> M:
        return self._copyValues(self._new_model(trained, prepared.given, summary)._resetUid(self.uid))

    def _fit_batch(self, dataset: DataFrame, estimators: Sequence[Self]) -> list[M]:
        first = estimators[0]
        with first._prepared(dataset) as prepared:
            members = [estimator._member(prepared) for estimator in estimators]
            options = {**first.options(), "task": self.task, "max_models": first.value("maxModels")}
            with ModelBatch(prepared.graph, members, **options) as batch:
                batch.train()
                return [estimator._ended(batch, number, prepared) for number, estimator in enumerate(estimators)]

    def _member(self, prepared: Prepared) -> Member:
        return Member(self._module(prepared), **training_settings(self))

    def _ended(self, batch: ModelBatch, number: int, prepared: Prepared) -> M:
        state = batch.states[number]
        diverged = state.reason if state.state == "diverged" else None
        if diverged is not None:
            log.warning("model %d of the grid diverged, and keeps its best weights: %s", number, diverged)
        if diverged is not None and not state.best_epoch:
            summary = Summary(state.history, {}, 0, {}, diverged)
            return self._model_of(self._untrained(prepared), prepared, summary)
        run = batch.run_of(number)
        return self._model_of(run.model, prepared, replace(Summary.of(run), diverged=diverged))

    def _untrained(self, prepared: Prepared) -> TrainedModel:
        """Return the model with its first weights, for a model that diverged before its first evaluation."""
        module = self._module(prepared)
        sizes = prepared.graph.statistics
        weighted = takes_tensors(module) and sizes.weighted
        spec = trace(module, sizes.width, training=False, data=sizes.edge_data, weighted=weighted)
        weights = {name: tensor.clone() for name, tensor in weights_of(module).items()}
        return TrainedModel(spec, prepared.graph.loss_spec(self.task, model_outputs(spec)), weights)
