"""The base class of all estimators: it fits all maps of a grid, batch by batch, and is written and read."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Self, TypeVar

from pyspark.ml.base import Estimator, Model
from pyspark.ml.param import Param
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame

from lotan.errors import ConfigurationError
from lotan.ml.given_graph import HasGraph
from lotan.ml.params import OF_ONE_MODEL
from lotan.ml.persistence import EstimatorReader, EstimatorWriter
from lotan.nn.named_models import Factory

M = TypeVar("M", bound=Model)
ParamMap = dict[Param[Any], Any]


class GridEstimator(Estimator[M], HasGraph, MLReadable[Any], MLWritable, Generic[M]):
    """The base of all estimators."""

    of_one_model: tuple[str, ...] = OF_ONE_MODEL
    """The Params that may differ between models that train together."""

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
    def _fit_rows(self, dataset: DataFrame) -> M:
        """Fit one model."""

    @abstractmethod
    def _fit_batch(self, dataset: DataFrame, estimators: Sequence[Self]) -> list[M]:
        """Fit the models of estimators that differ only in `of_one_model`, together."""

    def _fit(self, dataset: Any) -> M:
        whole, rows = self._around(dataset)
        return whole._fit_rows(rows)

    def _fit_all(self, dataset: DataFrame, maps: Sequence[ParamMap]) -> Iterator[tuple[int, M]]:
        """Fit the maps batch by batch, so that only the models of one batch are in memory."""
        estimators = [self.copy(one) for one in maps]
        batches: dict[tuple[Any, ...], list[int]] = {}
        for index, estimator in enumerate(estimators):
            batches.setdefault(estimator.key(without=self.of_one_model), []).append(index)
        for indices in batches.values():
            yield from zip(indices, self._fit_batch(dataset, [estimators[index] for index in indices]), strict=True)


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
