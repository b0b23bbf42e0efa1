"""The predictor of links: fit on a DataFrame of edges, it scores a DataFrame of pairs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from lotan.batch.members import Member
from lotan.batch.model_batch import ModelBatch
from lotan.errors import ConfigurationError, GraphError, ModelError
from lotan.graph.graph import Graph
from lotan.ml.grid_estimator import GridEstimator
from lotan.ml.held_model import HeldModel, check_new
from lotan.ml.link_params import OF_ONE_LINK_MODEL, LinkParams
from lotan.ml.link_tables import graph_of_links
from lotan.ml.modules import make_module, training_settings
from lotan.ml.summary import Summary
from lotan.ml.tables import DATASET, Given, hinted, require_frame, table
from lotan.nn.named_models import STOCK
from lotan.results.links_in_spark import PairColumns, scored_in_spark
from lotan.results.trained_model import TrainedModel
from lotan.training.finish import trained_model
from lotan.training.learner import weights_of
from lotan.training.trainer import Trainer
from planner.regime import hops

log = logging.getLogger(__name__)


def _around(owner: Any, dataset: Any) -> tuple[Any, Any]:
    """Return the estimator or model that takes a dataset's links, and these. Those of a GraphFrame are its edges."""
    if isinstance(dataset, DataFrame) or not (hasattr(dataset, "vertices") and hasattr(dataset, "edges")):
        return owner, dataset
    whole = owner.copy()
    whole.clear(whole.getParam("vertices"))
    whole._given = replace(whole._given, vertices=dataset.vertices, made={})
    return whole, dataset.edges


class GNNLinkPredictionModel(HeldModel, LinkParams):
    """A trained predictor of links. It adds the column `score` (double): the higher, the likelier the link.

    Messages pass along the links of training. `setEdges` gives others, which a model needs that was loaded, unless it
    reads no neighbours.
    """

    def __init__(self, trained: TrainedModel | None = None, given: Given | None = None, summary: Summary | None = None):
        super().__init__(trained, given, summary)

    def _around(self, dataset: Any) -> tuple[Self, Any]:
        return _around(self, dataset)

    def _transform_rows(self, dataset: DataFrame) -> DataFrame:
        require_frame("dataset", dataset)
        score = self.value("scoreCol")
        check_new([score], dataset)
        decoder = self.trained.decoder
        if decoder is None:
            raise ModelError("the model was trained on labels of vertices and scores no pairs; load it as what it is")
        if decoder.relations and self.value("relationCol") is None:
            raise ConfigurationError("the links of training had relations: set relationCol to the column of the pairs'")
        src, dst, relation = (self.value(name) for name in ("srcCol", "dstCol", "relationCol"))
        names = PairColumns(src, dst, relation, score, DATASET, "other vertices by setVertices")
        return scored_in_spark(dataset, self._rows(dataset.sparkSession), decoder, self.trained.weights, names)

    def _rows(self, spark: SparkSession) -> DataFrame:
        """Return the rows of all vertices. They are computed once if the graph stays the same."""
        key = self.key()
        if key in self._predicted:
            return self._predicted[key]
        with hinted(self, self._given):
            found = self.trained.link_rows_in_spark(self._messages(), self.predicting(), spark)
        if self.value("edges") is None and self.value("vertices") is None:  # tables by name may be others at each call
            self._predicted[key] = found
        return found

    def _messages(self) -> Graph:
        """Return the graph along which messages pass."""
        edges, ids = table(self._given.edges, self, "edges"), self.trained.ids
        if edges is not None:
            return graph_of_links(self, self._given, edges, "edges")
        if ids is None or hops(self.trained.spec) != 0:
            raise ConfigurationError(
                "there are no edges: a model that was loaded needs those along which messages pass, by setEdges(edges)"
            )
        (own,) = ids.values()  # of vertices of one type
        none = np.zeros(0, dtype=own.dtype)
        return Graph.from_arrays(ids=own, src=none, dst=none)


class GNNLinkPredictor(GridEstimator[GNNLinkPredictionModel], LinkParams):
    """Trains a graph neural network and a decoder that score pairs of vertices, see `lotan.LinkPrediction`.

    The dataset has the links. Those of training are the edges along which messages pass. Vertices are given by
    `setVertices`; without them, the ends of the links are all vertices, and a model must learn their rows.

    Args:
        params: Params by name. `explainParams()` lists them with their defaults.

    Raises:
        ConfigurationError: a Param is unknown.
    """

    of_one_model = OF_ONE_LINK_MODEL

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)

    def _around(self, dataset: Any) -> tuple[Self, Any]:
        return _around(self, dataset)

    def _fit_rows(self, dataset: DataFrame) -> GNNLinkPredictionModel:
        graph = self._graph(dataset)
        run = self._trainer(graph).fit()
        return self._model_of(run.model, dataset, Summary.of(run))

    def _graph(self, dataset: DataFrame) -> Graph:
        """Return the graph of the dataset's links.

        Raises:
            ConfigurationError: the dataset is no DataFrame, edges were given beside it, or a Param cannot be used.
            GraphError: a column is missing.
        """
        require_frame("dataset", dataset)
        if self._given.edges is not None or self.value("edges") is not None:
            raise ConfigurationError("the dataset of a GNNLinkPredictor has the edges: leave setEdges and edges out")
        self.config()
        return graph_of_links(self, self._given, dataset)

    def _trainer(self, graph: Graph) -> Trainer:
        return Trainer(self._member(graph).model, graph, **training_settings(self), **self.options())

    def _member(self, graph: Graph) -> Member:
        width = graph.statistics.width
        if not width and self._factory is None and self.value("modelType") in STOCK:
            raise GraphError(
                f"vertices: they have no features, and modelType {self.value('modelType')!r} reads them. Give them by "
                'setVertices(vertices), or learn rows in their place: modelType="lotan.nn:LearnedRows".'
            )
        return Member(
            make_module(self, self._factory, width, self.value("hiddenChannels")),
            **training_settings(self),
            regime=self.regime(),
            task=self.link_task(),
        )

    def _fit_batch(self, dataset: DataFrame, estimators: Sequence[Self]) -> list[GNNLinkPredictionModel]:
        first, graph = estimators[0], estimators[0]._graph(dataset)
        members = [estimator._member(graph) for estimator in estimators]
        options = {**first.options(), "max_models": first.value("maxModels")}
        with ModelBatch(graph, members, **options) as batch:
            batch.train()
            return [one._ended(batch, number, dataset, graph) for number, one in enumerate(estimators)]

    def _ended(self, batch: ModelBatch, number: int, dataset: DataFrame, graph: Graph) -> GNNLinkPredictionModel:
        state = batch.states[number]
        diverged = state.reason if state.state == "diverged" else None
        if diverged is not None:
            log.warning("model %d of the grid diverged, and keeps its best weights: %s", number, diverged)
        if diverged is not None and not state.best_epoch:
            trainer = self._trainer(graph)
            job, config = trainer.job, trainer.config.settled()
            first = trained_model(job, weights_of(job.learned(trainer.model)), config)
            return self._model_of(first, dataset, Summary(state.history, {}, 0, {}, diverged))
        run = batch.run_of(number)
        return self._model_of(run.model, dataset, replace(Summary.of(run), diverged=diverged))

    def _model_of(self, trained: TrainedModel, dataset: DataFrame, summary: Summary) -> GNNLinkPredictionModel:
        given = replace(self._given, edges=dataset, made={})
        return self._copyValues(GNNLinkPredictionModel(trained, given, summary)._resetUid(self.uid))
