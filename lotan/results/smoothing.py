"""Post-processing along edges: label propagation, and Correct and Smooth. Each runs as a plan without parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lotan.arguments import A_GRAPH, require_count, require_flag, require_kind, require_number
from lotan.borders import spark_translated
from lotan.errors import GraphError
from lotan.graph.faults import shown
from lotan.graph.graph import Graph
from lotan.graph.table_kinds import is_pandas
from lotan.nn.edge_index import EdgeIndex
from lotan.nn.message_passing import MessagePassing
from lotan.results.predictions import from_scores, hold
from lotan.results.trained_model import TrainedModel
from lotan.settings.config import make_config
from lotan.tracing.trace import trace
from planner.loss import LossSpec
from planner.spec import SPLITS

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

Rows = npt.NDArray[np.float32]

MOST_SCALE = 1000.0
"""The greatest factor of an error. Beyond it, as where no error arrived, PyG takes 1."""


class LabelPropagation:
    """Spreads the classes of the training vertices along edges.

        y <- clamp(alpha * S y + (1 - alpha) * y_0, 0, 1), num_layers times        S = D^-1/2 A D^-1/2

    The method is that of Zhu and Ghahramani, "Learning from Labeled and Unlabeled Data with Label Propagation" (2002),
    in the form of `torch_geometric.nn.LabelPropagation`. y_0 has a 1 at the class of each training vertex. S sums over
    in-edges, with their weights if the graph has some, and D has the weighted in-degrees, as in GCN without self-loops.

    Args:
        num_layers: how often labels are passed on.
        alpha: the share of the neighbours, from 0 to 1.

    Raises:
        ConfigurationError: an argument has a wrong value.

    Example:
        >>> import lotan
        >>> graph = lotan.Graph.read("digits")
        >>> found = lotan.LabelPropagation(num_layers=3, alpha=0.9).predict(graph, engine="local")
        >>> list(found.columns), len(found)
        (['id', 'prediction', 'score'], 1797)
    """

    def __init__(self, num_layers: int, alpha: float) -> None:
        self._spread = _Spread("LabelPropagation", num_layers, alpha)

    def predict(self, graph: Graph, **options: Any) -> Any:
        """Predict the class of every vertex.

        Args:
            graph: a graph with classes as labels, and a training split. Its features are not read.
            options: engine settings, as for `Trainer`.

        Returns:
            A DataFrame with `id`, `prediction`, and `score`, an array of one number for each class. For a graph of Spark
            DataFrames it is a Spark DataFrame, otherwise a pandas DataFrame.

        Raises:
            GraphError: no training vertex has a class, or the graph cannot be read.
            ConfigurationError: an option is unknown or unusable.
            EngineError: an engine or a worker fails.
        """
        require_kind("predict", "graph", graph, Graph, A_GRAPH)
        classes = _number_of_classes(graph)
        return _scores(_Labels(self._spread), _with_labels(graph, classes), classes, graph, options)


class CorrectAndSmooth:
    """Corrects predictions by the errors on training vertices, and smooths them along edges.

    The paper is Huang et al., "Combining Label Propagation and Simple Models Out-performs Graph Neural Networks" (2021),
    https://arxiv.org/abs/2010.13993; the form is that of `torch_geometric.nn.CorrectAndSmooth`. Errors, and then the
    corrected predictions with the true classes of the training vertices, are spread as in `LabelPropagation`.

    Args:
        num_correction_layers: how often errors are passed on.
        correction_alpha: the share of the neighbours in it.
        num_smoothing_layers: how often predictions are passed on.
        smoothing_alpha: the share of the neighbours in it.
        autoscale: if True, each vertex's error is scaled to the mean error of the training vertices (default: True).
        scale: the factor of errors without `autoscale` (default: 1).

    Raises:
        ConfigurationError: an argument has a wrong value.

    Example:
        >>> import lotan
        >>> graph = lotan.Graph.read("digits")
        >>> run = lotan.Trainer(lotan.nn.MLP([64, 16, 10], norm=None), graph, epochs=2, progress=False).fit()
        >>> smooth = lotan.CorrectAndSmooth(2, 0.9, 2, 0.8)
        >>> smooth.predict(graph, run.predict(), engine="local").columns.tolist()
        ['id', 'prediction', 'score']
    """

    def __init__(
        self,
        num_correction_layers: int,
        correction_alpha: float,
        num_smoothing_layers: int,
        smoothing_alpha: float,
        autoscale: bool = True,
        scale: float = 1.0,
    ) -> None:
        self._correct = _Spread("CorrectAndSmooth", num_correction_layers, correction_alpha)
        self._smooth = _Spread("CorrectAndSmooth", num_smoothing_layers, smoothing_alpha)
        require_number("CorrectAndSmooth", "scale", scale)
        self._scale = None if require_flag("CorrectAndSmooth", "autoscale", autoscale) else float(scale)

    def predict(self, graph: Graph, predictions: Any, **options: Any) -> Any:
        """Correct and smooth the predictions for every vertex.

        Args:
            graph: a graph with classes as labels, and a training split.
            predictions: what a run's or a model's `predict` returned for the graph: `id`, and `probability` as an array.
            options: engine settings, as for `Trainer`.

        Returns:
            A DataFrame as `LabelPropagation.predict` returns it.

        Raises:
            GraphError: a vertex has no prediction, no training vertex has a class, or the graph cannot be read.
            ConfigurationError: an option is unknown or unusable.
            EngineError: an engine or a worker fails.
        """
        require_kind("predict", "graph", graph, Graph, A_GRAPH)
        given, classes = _with_predictions(graph, predictions)
        module = _Smoothed(self._correct, self._smooth, self._scale, classes)
        return _scores(module, given, classes, graph, options)


# --- modules ----------------------------------------------------------------------------------------------------------


class _Normalised(MessagePassing):
    """GCN's normalised sum over in-edges, without self-loops."""

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        scale = graph.column("gcn_scale@graph").unsqueeze(-1)  # [num_vertices, 1]
        return self.propagate(graph, x * scale) * scale

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        return x_j * edge_weight.unsqueeze(-1)


class _Spread(torch.nn.Module):
    """Passes rows on along edges, several times."""

    def __init__(self, owner: str, layers: int, alpha: float) -> None:
        super().__init__()
        self._layers = require_count(owner, "num_layers", layers)
        require_number(owner, "alpha", alpha, 0.0, 1.0)
        self._alpha, self._sum = float(alpha), _Normalised()

    def forward(self, y: Tensor, graph: EdgeIndex, after: Callable[[Tensor], Tensor]) -> Tensor:
        start = y * (1 - self._alpha)
        for _ in range(self._layers):
            y = after(self._sum(y, graph) * self._alpha + start)
        return y


class _Labels(torch.nn.Module):
    """Label propagation of rows with a 1 at the known class."""

    def __init__(self, spread: _Spread) -> None:
        super().__init__()
        self._spread = spread

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        return self._spread(x, graph, lambda y: y.clamp(0.0, 1.0))  # type: ignore[no-any-return]


class _Smoothed(torch.nn.Module):
    """Correct and Smooth of rows with the predictions, a 1 at the known class, and a 1 if the class is known."""

    def __init__(self, correct: _Spread, smooth: _Spread, scale: float | None, classes: int) -> None:
        super().__init__()
        self._correct, self._smooth = correct, smooth
        self._scale, self._classes = scale, classes

    def forward(self, x: Tensor, graph: EdgeIndex) -> Tensor:
        soft, true = x[:, : self._classes], x[:, self._classes : -1]
        known = x[:, -1:]  # [num_vertices, 1]
        error = known * (true - soft)
        if self._scale is not None:
            smoothed = self._correct(error, graph, lambda y: torch.where(known > 0, error, y)) * self._scale
        else:
            smoothed = self._correct(error, graph, lambda y: y.clamp(-1.0, 1.0))
            mean = error.abs().sum(dim=-1, keepdim=True).sum(0) / known.sum(0)
            scale = mean / smoothed.abs().sum(dim=-1, keepdim=True)
            smoothed = smoothed * torch.where(scale > MOST_SCALE, 1.0, scale)  # infinite ones among them
        given = torch.where(known > 0, true, soft + smoothed)
        return self._smooth(given, graph, lambda y: y.clamp(0.0, 1.0))  # type: ignore[no-any-return]


# --- graphs and results -----------------------------------------------------------------------------------------------


def _number_of_classes(graph: Graph) -> int:
    """Return the number of classes."""
    labels = graph.labels
    if labels.task != "classification" or not labels.labelled[0]:
        raise GraphError("no training vertex has a class; give the graph labels that are classes, and a split")
    return max(labels.outputs, len(labels.classes))


def _with_labels(graph: Graph, classes: int) -> Graph:
    """Return a graph whose features have a 1 at the class of each training vertex."""
    if graph.origin != "spark":
        return _of_arrays(graph, _known(graph, classes)[:, :-1])
    vertices, edges = _tables(graph)
    return _of_tables(vertices.select("id", _known_in_spark(classes, mask=False).alias("features")), edges, graph)


def _with_predictions(graph: Graph, predictions: Any) -> tuple[Graph, int]:
    """Return a graph whose features have predictions, known classes, and if they are known; and the number of classes."""
    if graph.origin != "spark":
        frame = predictions if is_pandas(predictions) else predictions.toPandas()
        soft = np.stack(frame["probability"]).astype(np.float32)
        rows = frame.reset_index(drop=True).reset_index().set_index("id")["index"].reindex(graph.arrays().ids)
        if rows.isna().any():
            raise GraphError(
                f"predictions: {int(rows.isna().sum()):,} vertices have none, such as {shown(rows.index[rows.isna()][0])}"
            )
        classes = _check_classes(graph, soft.shape[1])
        features = np.concatenate([soft[rows.to_numpy(dtype=np.int64)], _known(graph, classes)], axis=1)
        return _of_arrays(graph, features), classes
    from pyspark.sql import functions as F

    vertices, edges = _tables(graph)
    given = predictions if not is_pandas(predictions) else vertices.sparkSession.createDataFrame(predictions)
    first = given.select(F.size("probability")).first()
    classes = _check_classes(graph, first[0] if first is not None else 0)
    joined = vertices.join(given.select("id", F.col("probability").cast("array<float>").alias("soft")), "id", "left")
    missing = joined.where(F.col("soft").isNull()).count()
    if missing:
        raise GraphError(f"predictions: {missing:,} vertices have none")
    together = F.concat("soft", _known_in_spark(classes, mask=True)).alias("features")
    return _of_tables(joined.select("id", together), edges, graph), classes


def _check_classes(graph: Graph, width: int) -> int:
    found = _number_of_classes(graph)
    if width < found:
        raise GraphError(f"predictions: have {width} probabilities, but training vertices have {found} classes")
    return width


def _known(graph: Graph, classes: int) -> Rows:
    """Return the classes of the training vertices as rows with a 1 each, and a last column of 1 where they are known."""
    arrays = graph.arrays()
    known = (arrays.split == SPLITS.index("train")) & (arrays.label >= 0)
    rows = np.zeros((len(known), classes + 1), dtype=np.float32)
    rows[known, arrays.label[known]] = 1.0
    rows[known, -1] = 1.0
    return rows


def _known_in_spark(classes: int, mask: bool) -> Any:
    """Return the column of `_known` in Spark."""
    from pyspark.sql import functions as F

    known = (F.col("split") == SPLITS[0]) & (F.col("label") >= 0)
    hits = [known & (F.col("label") == number) for number in range(classes)]
    return F.array(*(F.coalesce(hit, F.lit(False)).cast("float") for hit in [*hits, *[known] * mask]))


def _tables(graph: Graph) -> tuple[DataFrame, DataFrame]:
    """Return the tables of a graph in Spark, with splits by name."""
    from pyspark.sql import functions as F

    vertices, edges = graph.frames(graph.tables()[0].sparkSession)
    names = F.create_map(*(F.lit(one) for pair in enumerate(SPLITS) for one in pair))
    return vertices.withColumn("split", names[F.col("split")]), edges


def _of_arrays(graph: Graph, features: Rows) -> Graph:
    arrays = graph.arrays()
    src, dst = arrays.ids[arrays.src], arrays.ids[arrays.dst]
    return Graph.from_arrays(features, src, dst, weight=arrays.weight, ids=arrays.ids)


def _of_tables(vertices: DataFrame, edges: DataFrame, graph: Graph) -> Graph:
    weight = "weight" if graph.statistics.weighted else None
    columns = ["src", "dst", *(["weight"] if weight else [])]
    return Graph(vertices, edges.select(*columns), features="features", weight=weight)


@spark_translated()
def _scores(module: torch.nn.Module, given: Graph, classes: int, graph: Graph, options: dict[str, Any]) -> Any:
    """Return the outputs of a module without parameters for each vertex, with the class of the greatest."""
    spec = trace(module, given.estimate().width, training=False)
    model = TrainedModel(spec, LossSpec("classification", classes, normalizer=1.0), {})
    spark = given.tables()[0].sparkSession if given.origin == "spark" else None
    names = graph.labels.classes
    return model.with_outputs(given, make_config(options), lambda frame, ids: hold(_named(frame, ids, names), spark))


def _named(frame: pd.DataFrame | DataFrame, id_type: str, names: tuple[str, ...]) -> pd.DataFrame | DataFrame:
    """Return rows of `id` and `values` as `id`, `prediction` and `score`."""
    if is_pandas(frame):
        return from_scores(frame, names)

    def run(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            if len(batch):
                yield from_scores(batch, names)

    schema = f"id {id_type}, prediction {'string' if names else 'bigint'}, score array<float>"
    return frame.select(frame["id"].cast(id_type).alias("id"), "values").mapInPandas(run, schema)
