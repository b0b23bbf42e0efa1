"""A trained model as data: the traced operators and their weights. Predictions need none of the user's code."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from lotan.arguments import A_GRAPH, require_count, require_flag, require_kind
from lotan.borders import spark_translated
from lotan.engines.base import Pass, run
from lotan.engines.choice import idle_settings, settled_for
from lotan.engines.opening import check_engine, open_engine, placed
from lotan.errors import GraphError, ModelError, StageError
from lotan.files import SAVED_MODEL, DamagedError, expanded, read_data, write_atomically
from lotan.graph.arrays import Ids
from lotan.graph.faults import fault
from lotan.graph.files import has_graph
from lotan.graph.given_tables import from_pandas_on_spark
from lotan.graph.graph import Graph
from lotan.graph.id_files import read_ids, write_ids
from lotan.graph.seen_labels import with_seen_labels
from lotan.graph.table_kinds import is_spark
from lotan.links.examples import known_links, links_for_prediction
from lotan.planning.learned import Unseen, by_id, check_learned_rows, check_unseen, ids_by_type
from lotan.planning.prepare import foreseen, plan_for
from lotan.results.graph_fit import check_read, differences
from lotan.results.links import TrainedDecoder, ranked, read_pairs, rows_in_order, scored
from lotan.results.predictions import hold, predictions, write
from lotan.settings.config import TrainerConfig, make_config
from lotan.settings.tasks import LinkPrediction
from lotan.stages.codec import decode_loss, decode_spec, encode_loss, encode_spec
from planner.loss import LossSpec
from planner.rules import REPAID_BY_EPOCHS
from planner.spec import Spec
from planner.steps.pipe import PipeStep

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

    from lotan.results.vertex_explanation import VertexExplanation

FORMAT = 1
SPEC, WEIGHTS, IDS = SAVED_MODEL, "weights.pt", "ids.parquet"
_MEND = "Save it again with Run.save, or train again with --save"

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainedModel:
    """A trained model that predicts. `lotan.load` returns one, and a `Run` holds one."""

    spec: Spec  # the traced model in evaluation mode
    loss: LossSpec  # the task
    weights: dict[str, torch.Tensor]  # parameters and buffers, by name
    classes: tuple[str, ...] = ()  # the texts that stand for classes 0, 1, ...; empty if labels were numbers
    edges: Mapping[str, bool] = field(default_factory=dict)  # `edges_of` the graph of training; empty: not known
    # of the vertices whose learned rows are among the weights, ascending, by their type; None: there are none
    ids: Mapping[str, Ids] | None = None
    decoder: TrainedDecoder | None = None  # of a model that was trained on links; None: on labels
    features: tuple[str, ...] = ()  # the columns of features of the graph of training, in their order; empty: not known

    def predict(self, graph: Graph, unseen: Unseen = "error", **options: Any) -> Any:
        """Predict every vertex of a graph, or every one of the type that has labels.

        Args:
            graph: A graph with features as wide as those of training. Labels and splits are not read.
            unseen: For a model with learned rows, what vertices get that the graph of training did not have: "error", or
                "mean" for the mean of all rows.
            options: Engine settings, as for `Trainer`.

        Returns:
            A DataFrame with the columns `id`, `prediction` and, except for regression, `probability`. A prediction is
            the class, as a number or as the text that was its label (classification), an array of 0 and 1 (multi-label)
            or an array of numbers (regression). A probability is an array with one number per class or label. For a
            graph of Spark DataFrames it is a Spark DataFrame, which stays in Spark's storage until it is unpersisted;
            otherwise it is a pandas DataFrame.

        Raises:
            ConfigurationError: If an option is unknown or unusable.
            GraphError: If the graph cannot be read, its features have another width, or vertices have no learned row.
            EngineError: If an engine or a worker fails.
        """
        require_kind("predict", "graph", graph, Graph, A_GRAPH)
        check_unseen(unseen)
        return self.predict_as(graph, make_config(options), unseen)

    def predict_as(self, graph: Graph, config: TrainerConfig, unseen: Unseen = "error") -> Any:
        """Predict every vertex with settings that are made already, see `predict`."""
        spark = graph.tables()[0].sparkSession if graph.origin == "spark" else None
        return self._with_predictions(graph, config, lambda frame: hold(frame, spark), unseen)

    def write_predictions(self, graph: Graph, path: str | Path, unseen: Unseen = "error", **options: Any) -> None:
        """Predict as `predict` does, and write the rows as Parquet. The driver need not hold all rows."""
        check_unseen(unseen)
        self._with_predictions(graph, make_config(options), lambda frame: write(frame, path), unseen)

    def predict_links(self, graph: Graph, pairs: Any, unseen: Unseen = "error", **options: Any) -> Any:
        """Score pairs of vertices of a graph.

        Messages pass along the graph's links of training, or along all its edges if they have no column `split`.

        Args:
            graph: A graph with features as wide as those of training.
            pairs: A table with `src` and `dst`, and `relation` if the links of training had relations: a DataFrame of Spark,
                pandas or polars, an Arrow table, or a dict of arrays.
            unseen: The same as in `predict`.
            options: Engine settings, as for `Trainer`.

        Returns:
            The pairs with a column `score`. The higher a score, the likelier the link. For pairs in memory it is a pandas
            DataFrame of the columns named above. For pairs in Spark it is a Spark DataFrame with all their columns, in no
            certain order of rows, and the driver holds neither pairs nor scores. If the engine runs in Spark, on a graph
            that is there, the rows of vertices stay there too.

        Raises:
            ModelError: If the model was trained on labels.
            GraphError: If a vertex or a relation is not known, pairs in Spark have a column `score`, or the graph cannot
                be read.
            ConfigurationError: If an option is unknown or unusable.
        """
        config = make_config(options)
        pairs = from_pandas_on_spark(pairs)
        if is_spark(pairs):
            return self._predict_in_spark(graph, pairs, config, unseen)
        trained, messages, config = self._of_links(graph, config)
        asked = read_pairs(pairs, ("src", "dst"), messages.ids, trained.relations)
        return scored(trained.decoder(self.weights), self._rows(messages, config, unseen), asked)

    def link_rows(self, graph: Graph, config: TrainerConfig, unseen: Unseen = "error") -> tuple[Ids, torch.Tensor]:
        """Return the ids of all vertices of a graph, ascending, and the rows that the decoder scores. [vertices, width].

        Args:
            graph: A graph as in `predict_links`.
            config: The settings, with those of the engine.
            unseen: The same as in `predict`.

        Raises:
            ModelError: If the model was trained on labels.
            GraphError: If the graph cannot be read.
        """
        _, messages, config = self._of_links(graph, config)
        return messages.ids, self._rows(messages, config, unseen)

    def link_rows_in_spark(
        self, graph: Graph, config: TrainerConfig, spark: SparkSession, unseen: Unseen = "error"
    ) -> DataFrame:
        """Return the rows of `link_rows` as a Spark DataFrame of `id` and `row` (array of float).

        The rows of an engine in Spark, of a graph that is there, never leave it. Spark drops them when no plan refers to
        them.

        Args:
            graph: A graph as in `predict_links`.
            config: The settings, with those of the engine.
            spark: The session, to which other rows are sent.
            unseen: The same as in `predict`.

        Raises:
            ModelError: If the model was trained on labels.
            GraphError: If the graph cannot be read.
        """
        from lotan.results.links_in_spark import held_rows  # imported here, because the local engine needs no Spark

        check_unseen(unseen)
        _, messages, config = self._of_links(graph, config)
        return self.with_outputs(messages, config, lambda frame, kind: held_rows(frame, kind, spark), unseen)

    def _predict_in_spark(self, graph: Graph, pairs: DataFrame, config: TrainerConfig, unseen: Unseen) -> DataFrame:
        from lotan.results.links_in_spark import PairColumns, scored_in_spark

        names = PairColumns()
        if names.score in pairs.columns:
            raise fault(names.table, names.score, "the column is there already", "Drop it, or rename it.")
        rows = self.link_rows_in_spark(graph, config, pairs.sparkSession, unseen)
        assert self.decoder is not None  # it has made rows
        found = scored_in_spark(pairs, rows, self.decoder, self.weights, names)
        return found.withColumn(names.score, found[names.score].cast("float"))

    def rank(
        self,
        graph: Graph,
        queries: Any,
        k: int = 10,
        exclude_known: bool = False,
        unseen: Unseen = "error",
        **options: Any,
    ) -> pd.DataFrame:
        """Find the best destinations of sources, among all vertices of a graph.

        Args:
            graph: A graph with features as wide as those of training.
            queries: A table in memory with `src`, and `relation` if the links of training had relations.
            k: The number of destinations for each query, at most.
            exclude_known: True to leave out destinations to which the graph has a link of that relation, of any split.
            unseen: The same as in `predict`.
            options: Engine settings, as for `Trainer`.

        Returns:
            A row for each query and destination, best first: `src`, perhaps `relation`, `dst`, `score` and `rank`, from 1.

        Raises:
            ModelError: If the model was trained on labels.
            GraphError: If a vertex or a relation is not known, or the graph cannot be read.
            ConfigurationError: If an option is unknown or unusable.
        """
        trained, messages, config = self._of_links(graph, make_config(options))
        k, ids = require_count("rank", "k", k), messages.ids
        asked = read_pairs(queries, ("src",), ids, trained.relations)
        known = known_links(graph, trained.relations) if require_flag("rank", "exclude_known", exclude_known) else None
        rows = self._rows(messages, config, unseen)
        return ranked(trained.decoder(self.weights), rows, asked, ids, k, None if known is None else known.destinations)

    def _of_links(self, graph: Graph, config: TrainerConfig) -> tuple[TrainedDecoder, Graph, TrainerConfig]:
        """Return the decoder, the graph along which messages pass, and the settings that take effect for it.

        The graph is in Spark for an engine there, if it is there. Engine "auto" is the one that would train on it.
        """
        require_kind("predict_links", "graph", graph, Graph, A_GRAPH)
        if self.decoder is None:
            raise ModelError("the model was trained on labels of vertices and scores no links; use predict")
        drawn = self.decoder.fractions, self.decoder.seed, self.decoder.relations
        if graph.origin == "spark" and config.engine == "auto":
            config = replace(config, engine=settled_for(replace(config, task=LinkPrediction()), graph).engine)
        if graph.origin != "spark" or config.engine not in ("blocks", "rows"):
            return self.decoder, links_for_prediction(graph, *drawn), config
        from lotan.links.on_spark import messages_on_spark  # imported here, because the local engine needs no Spark

        return self.decoder, messages_on_spark(graph, *drawn), config

    def _rows(self, graph: Graph, config: TrainerConfig, unseen: Unseen) -> torch.Tensor:
        """Return the output rows of all vertices, in the order of the graph's arrays. [vertices, width]."""
        check_unseen(unseen)
        return self.with_outputs(graph, config, lambda frame, _: rows_in_order(graph, hold(frame, None)), unseen)

    def _with_predictions(
        self, graph: Graph, config: TrainerConfig, use: Callable[[Any], T], unseen: Unseen = "error"
    ) -> T:
        if self.decoder is not None:
            raise ModelError(
                "the model was trained on links, and vertices have no predictions of their own; use predict_links for scores of "
                "pairs, or rank for the best destinations"
            )

        def found(frame: Any, ids: str) -> T:
            return use(predictions(frame, self.loss.task, ids, self.classes, self.loss.cuts))

        return self.with_outputs(graph, config, found, unseen)

    @spark_translated()
    def with_outputs(
        self, graph: Graph, config: TrainerConfig, use: Callable[[Any, str], T], unseen: Unseen = "error"
    ) -> T:
        """Return `use(rows, type of ids)`, called while the engine is open. Until then, a Spark DataFrame is only a plan.

        Args:
            graph: A graph with features as wide as those of training.
            config: The settings, with those of the engine.
            use: A function of a DataFrame, pandas or Spark, with `id` and `values` (the output row as an array of
                float), and of Spark's name for the type of ids.
            unseen: The same as in `predict`.
        """
        check_learned_rows(config, self.spec)
        check_engine(config, graph)
        # There is a single pass over all vertices: it gains nothing by earlier computations or by an order of the vertices.
        config = replace(config, disable=(*config.disable, *REPAID_BY_EPOCHS))
        with ExitStack() as stack:
            graph = stack.enter_context(placed(graph, config, foreseen(self.spec, self.spec, graph, config)))
            graph = self._with_seen_labels(graph)
            check_read(self.spec, self.features, graph)
            weights = self._weights_for(graph, unseen)
            loss = replace(self.loss, vertex_weights=False)  # predictions read no weights, which the graph may lack
            choice, planned, needs = plan_for(self.spec, self.spec, loss, graph, config)
            for warning in (*idle_settings(choice.name, config, graph), *differences(self.spec, self.edges, graph)):
                log.warning("%s", warning)
            engine = stack.enter_context(closing(open_engine(needs, graph, config)))
            engine.load(graph, planned.plan)
            a_pass = Pass(epoch=0, parameters=weights, seed=config.seed)
            last = planned.plan.predict[-1]
            assert isinstance(last, PipeStep), "a model's output is the last stage's"
            output = last.outputs[0].name
            handle = run(engine, planned.plan, planned.plan.predict, a_pass, keep=(output,)).columns[output]
            stack.callback(engine.release, handle)
            return use(*graph.of_task(engine.read(handle)))

    def _weights_for(self, graph: Graph, unseen: Unseen = "error") -> Mapping[str, torch.Tensor]:
        """Return the weights, with learned rows in the order of a graph's vertices."""
        if self.ids is None:
            return self.weights
        return by_id(self.weights, self.spec.types_of_rows, self.ids, ids_by_type(graph, self.spec), unseen)

    def _with_seen_labels(self, graph: Graph) -> Graph:
        """Return the graph that a model with labels as input reads: with those of its training vertices.

        Raises:
            GraphError: The graph has no training labels, or its classes have other names than those of training.
        """
        if not self.spec.sees_labels:
            return graph
        if graph.labels.classes != self.classes:
            raise GraphError("the model takes labels as input, and the classes of this graph are not those of training")
        return with_seen_labels(graph)

    def explain_vertex(self, graph: Graph, vertex: int | str, **options: Any) -> VertexExplanation:
        """Explain an output of a vertex by the influence of its neighbourhood's vertices, edges and features.

        The vertices on which the output depends are read, and nothing else of the graph: as many hops as the model has
        sums along edges.

        Args:
            graph: The graph.
            vertex: The vertex's id; in a graph of several types, that of a vertex of the type that has labels.
            options: `output` is the number of the class, label or target (default: that of the greatest output).
                `method` is "integrated_gradients" (Sundararajan et al., ICML 2017), the default, or "gnn_explainer"
                (Ying et al., NeurIPS 2019). `steps` are those of the integral (default: 64) or of learning the masks
                (default: 200). `most_edges` is the most edges on which the output may depend (default: 100,000).
                `seed` is that of the first masks (default: 0).

        Raises:
            GraphError: If there is no such vertex, or its output depends on more edges.
            ModelError: If the model takes statistics of all vertices, or the graph does not fit the model.
            ConfigurationError: If an option is unusable.

        Example:
            >>> import lotan
            >>> run = lotan.Trainer(lotan.nn.GCN(64, 8, 2, 10), lotan.Graph.read("digits"), epochs=1, progress=False).fit()
            >>> explained = run.explain_vertex(0)
            >>> list(explained.edges.columns)
            ['src', 'dst', 'influence']
        """
        if self.decoder is not None:
            raise ModelError("explain_vertex explains labels of vertices; this model was trained on links")
        if self.spec.groups is not None:
            raise ModelError(
                "the model reduces by the groups of a column batch, so an output depends on all vertices of several groups; "
                "explain_vertex reads only those that have a path of edges to the vertex"
            )
        from lotan.results.vertex_explanation import explain_vertex

        graph = self._with_seen_labels(graph)
        check_read(self.spec, self.features, graph)
        weights = self._weights_for(graph)  # reads the graph only if there are learned rows
        return explain_vertex(self.spec, self.loss, weights, graph, vertex, **options)

    def save(self, directory: str | Path, overwrite: bool = False) -> None:
        """Write `model.json` (the operators) and `weights.pt` (a state_dict) into a directory.

        For a model with learned rows, `ids.parquet` has the ids of the rows, in their order.

        Args:
            directory: The directory.
            overwrite: True to replace a saved model that is there.

        Raises:
            ModelError: A saved model is there and `overwrite` is False, the directory has a saved graph, or it is a file.
        """
        directory = expanded(directory)
        require_flag("save", "overwrite", overwrite)
        _require_room(directory, overwrite)
        content = {"format": FORMAT, "spec": encode_spec(self.spec), "loss": encode_loss(self.loss)}
        content |= {"edges": dict(self.edges)} if self.edges else {}
        content |= {"classes": list(self.classes)} if self.classes else {}
        content |= {"features": list(self.features)} if self.features else {}
        content |= {"links": self.decoder.plain()} if self.decoder is not None else {}
        directory.mkdir(parents=True, exist_ok=True)
        if self.ids is not None:
            write_ids(directory / IDS, self.ids)
        else:
            (directory / IDS).unlink(missing_ok=True)  # of a model that is replaced
        write_atomically(directory / WEIGHTS, lambda stream: torch.save(self.weights, stream))
        write_atomically(directory / SPEC, lambda stream: stream.write(json.dumps(content).encode()))


def _require_room(directory: Path, overwrite: bool) -> None:
    """Check that a model can be saved in a directory."""
    if directory.exists() and not directory.is_dir():
        raise ModelError(f"{directory} is a file, and a model is saved as a directory; name another place")
    if has_graph(directory):
        raise ModelError(f"{directory} has a saved graph, and a model needs a folder of its own; name another place")
    if (directory / SPEC).exists() and not overwrite:
        raise ModelError(
            f"{directory} has a saved model already; name another place, or pass overwrite=True to replace it"
        )


def load(directory: str | Path) -> TrainedModel:
    """Return the model that `Run.save` or `lotan train --save` wrote. Loading reads data only and runs no code from the files.

    Args:
        directory: The directory with `model.json` and `weights.pt`.

    Raises:
        ModelError: If there is no model, or if it cannot be read.
    """
    directory = expanded(directory)
    try:
        content, weights = _read_spec(directory / SPEC), read_data(directory / WEIGHTS)
        if content.get("format") != FORMAT:
            raise ValueError(f"it is of format {content.get('format')}, and this version of lotan reads {FORMAT}")
        spec = decode_spec(content["spec"])
        _check_fit(spec, weights)
        loss = decode_loss(content["loss"])
        edges = {str(name): bool(value) for name, value in dict(content.get("edges", {})).items()}
        ids = _ids(directory / IDS, spec) if spec.learned else None
        classes = _classes(content.get("classes", ()), loss.classes)
        decoder = TrainedDecoder.of_plain(content["links"], weights) if loss.of_pairs else None
        features = tuple(map(str, content.get("features", ())))
        return TrainedModel(spec, loss, weights, classes, edges, ids, decoder, features)
    except FileNotFoundError as error:
        raise ModelError(
            f"{directory} holds no model: {error.filename} is missing. Save one with Run.save, or --save"
        ) from error
    except KeyError as error:
        raise ModelError(f"the model in {directory} cannot be read: {SPEC} has no {error}. {_MEND}") from error
    except (ValueError, TypeError, OSError, DamagedError, StageError) as error:
        raise ModelError(f"the model in {directory} cannot be read: {error}. {_MEND}") from error


def _read_spec(path: Path) -> dict[str, Any]:
    cause = None
    try:
        content = json.loads(path.read_text())
        if isinstance(content, dict):
            return content
    except ValueError as error:  # the file is not JSON, or not text
        cause = error
    raise DamagedError(f"{path} ({path.stat().st_size:,} bytes) is cut short, damaged or not a lotan file") from cause


def _ids(path: Path, spec: Spec) -> dict[str, Ids]:
    """Return the ids of learned rows by type. Raises ValueError if there are not as many as rows."""
    ids, types = read_ids(path), spec.types_of_rows
    for parameter in spec.parameters:
        if parameter.name in types:
            count = len(ids.get(types[parameter.name], ()))
            if parameter.shape[0] != count:
                raise ValueError(f"{IDS} has {count:,} ids, and {parameter.name} has {parameter.shape[0]:,} rows")
    return ids


def _classes(given: Any, outputs: int) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        raise ValueError(f"its classes are {given!r}, and texts were expected")
    if given and len(given) > outputs:
        raise ValueError(f"it names {len(given)} classes and has {outputs} outputs")
    return tuple(given)


def _check_fit(spec: Spec, weights: dict[str, Any]) -> None:
    for parameter in spec.parameters:
        tensor = weights.get(parameter.name)
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{WEIGHTS} has no {parameter.name}")
        if tuple(tensor.shape) != tuple(parameter.shape):
            raise ValueError(
                f"{parameter.name} has shape {tuple(tensor.shape)} in {WEIGHTS} and {tuple(parameter.shape)} in {SPEC}"
            )
