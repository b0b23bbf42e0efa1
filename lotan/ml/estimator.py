"""The base class of the estimators. They take Params and tables, and train all maps of a grid as one batch of models."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import torch
from pyspark.ml.base import Estimator
from pyspark.ml.param import Param
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame

from lotan.batch.members import Member
from lotan.batch.model_batch import ModelBatch
from lotan.errors import ConfigurationError
from lotan.graph import Graph
from lotan.ml.given_graph import HasGraph
from lotan.ml.model import GNNModel
from lotan.ml.modules import make_module, make_optimizer
from lotan.ml.params import OF_ONE_MODEL
from lotan.ml.persistence import EstimatorReader, EstimatorWriter
from lotan.ml.rows import check_rows, training_rows
from lotan.ml.summary import Summary
from lotan.ml.tables import Given, hinted, require_frame, table, training_graph, whole_graph
from lotan.nn.named_models import Factory
from lotan.planning.job import model_outputs
from lotan.results.trained_model import TrainedModel
from lotan.tracing import takes_tensors, trace
from lotan.training.learner import weights_of
from lotan.training.trainer import Trainer
from planner.spec import Task

log = logging.getLogger(__name__)

M = TypeVar("M", bound=GNNModel)
ParamMap = dict[Param[Any], Any]


@dataclass(frozen=True)
class Prepared:
    """A dataset as training needs it: the graph around it, and the width of the model's output."""

    graph: Graph
    given: Given
    outputs: int  # classes, or 1


class GNNEstimator(Estimator[M], HasGraph, MLReadable[Any], MLWritable, Generic[M]):
    """The base of `GNNClassifier` and `GNNRegressor`."""

    task: Task

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self._factory: Factory | None = None
        self.setParams(**params)

    def setModelFactory(self, factory: Factory) -> Self:
        """Train a model of your own instead of a stock one.

        A factory is code, so an estimator that has one cannot be saved. Its models can. A factory that can be imported
        may be named instead: modelType="my_module:make_model".

        Args:
            factory: a function that returns a `torch.nn.Module`. Of in_channels, hidden_channels, num_layers,
                out_channels, dropout and heads, it is passed those for which it has parameters.

        Returns:
            This estimator.
        """
        self._factory = factory
        return self

    def fitMultiple(
        self,
        dataset: Any,
        paramMaps: Sequence[ParamMap],
    ) -> Iterator[tuple[int, M]]:
        """Fit a model for every map.

        Maps that differ only in the model and its optimizer train as one batch, over shared passes. A model that
        diverges does not affect the others. It has the weights of its best epoch, or its first weights if it was never
        evaluated. `model.summary.diverged` and a warning give the reason.

        Args:
            dataset: rows of vertices, or a GraphFrame.
            paramMaps: for each model, the Params by which it differs from this estimator.

        Returns:
            An iterator over (index of the map, model). Several threads may use it. Training starts with its first item.
        """
        whole, rows = self.copy()._around(dataset)
        return _Models(lambda: whole._fit_all(rows, paramMaps))

    def write(self) -> EstimatorWriter:
        """Return a writer, for `estimator.write().overwrite().save(path)`."""
        if self._factory is not None:
            raise ConfigurationError(
                "an estimator with a model factory cannot be saved, for it is code; its models can"
            )
        return EstimatorWriter(self)

    @classmethod
    def read(cls) -> EstimatorReader:
        """Return a reader, for `GNNClassifier.read().load(path)`."""
        return EstimatorReader(cls)

    @abstractmethod
    def _outputs(self, dataset: DataFrame, largest: int) -> int:
        """Return the width of the model's output. `largest` is the largest label + 1."""

    @abstractmethod
    def _new_model(self, trained: TrainedModel, given: Given, summary: Summary) -> M:
        """Return a model of this estimator's class of models."""

    def _fit(self, dataset: Any) -> M:
        whole, rows = self._around(dataset)
        return whole._fit_rows(rows)

    def _fit_rows(self, dataset: DataFrame) -> M:
        with self._prepared(dataset) as prepared:
            run = Trainer(
                self._module(prepared),
                prepared.graph,
                optimizer=make_optimizer(self),
                lr_scheduler=self.value("lrScheduler"),
                clip_grad_norm=self.value("clipGradNorm"),
                epochs=self.value("epochs"),
                patience=self.value("patience"),
                seed=self.value("seed"),
                task=self.task,
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

    def _fit_all(self, dataset: DataFrame, maps: Sequence[ParamMap]) -> Iterator[tuple[int, M]]:
        """Fit the maps batch by batch, so that only the models of one batch are in memory."""
        estimators = [self.copy(one) for one in maps]
        batches: dict[tuple[Any, ...], list[int]] = {}
        for index, estimator in enumerate(estimators):
            batches.setdefault(estimator.key(without=OF_ONE_MODEL), []).append(index)
        for indices in batches.values():
            yield from zip(indices, self._fit_batch(dataset, [estimators[index] for index in indices]), strict=True)

    def _fit_batch(self, dataset: DataFrame, estimators: Sequence[GNNEstimator[M]]) -> list[M]:
        first = estimators[0]
        with first._prepared(dataset) as prepared:
            members = [estimator._member(prepared) for estimator in estimators]
            options = {**first.options(), "task": self.task, "max_models": first.value("maxModels")}
            with ModelBatch(prepared.graph, members, **options) as batch:
                batch.train()
                return [estimator._ended(batch, number, prepared) for number, estimator in enumerate(estimators)]

    def _member(self, prepared: Prepared) -> Member:
        return Member(
            self._module(prepared),
            optimizer=make_optimizer(self),
            lr_scheduler=self.value("lrScheduler"),
            clip_grad_norm=self.value("clipGradNorm"),
            seed=self.value("seed"),
            epochs=self.value("epochs"),
            patience=self.value("patience"),
        )

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


class _Models(Generic[M]):
    """An iterator that several threads may call at once, as CrossValidator with parallelism does."""

    def __init__(self, start: Callable[[], Iterator[tuple[int, M]]]) -> None:
        self._start = start
        self._models: Iterator[tuple[int, M]] | None = None
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[tuple[int, M]]:
        return self

    def __next__(self) -> tuple[int, M]:
        with self._lock:
            if self._models is None:
                self._models = self._start()
            return next(self._models)
