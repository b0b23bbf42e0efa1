"""The check of a graph before the first epoch, wherever it lies."""

from __future__ import annotations

from lotan.errors import GraphError
from lotan.graph.column_names import ColumnNames
from lotan.graph.graph import Graph
from lotan.validation.arrays import check_arrays
from lotan.validation.demands import Demands, GraphReport
from planner.edge_columns import NO_EDGE_DATA, EdgeData
from planner.loss import Task
from planner.spec import Bound


def check_graph(
    graph: Graph,
    task: Task | None,
    outputs: int | None,
    in_channels: int | None,
    normalised_weights: bool = False,
    reads: EdgeData = NO_EDGE_DATA,
    types: tuple[int, str] | None = None,
    bounds: tuple[Bound, ...] = (),
    in_edges: tuple[int, str] | None = None,
) -> GraphReport:
    """Check a graph, and that it fits a model and a task.

    A graph in Spark is checked there, with five jobs. To have Spark read the files of a graph, pass
    `graph.on_spark(spark)`.

    Args:
        graph: the graph.
        task: the task; or None, as for predictions, to check neither labels nor splits.
        outputs: width of the model's output, or None for any.
        in_channels: width of the features that the model expects, or None for any.
        normalised_weights: True if a layer takes roots of summed weights, as GCN does, so that weights must not be
            negative (default: False).
        reads: the columns of edges that the model reads (default: none).
        types: how many types of edges the model distinguishes, and the name of the layer that does; None: it takes any
            type (default: None).
        bounds: the columns whose numbers layers take as types or classes (default: none).
        in_edges: the most in-edges of a vertex that the model can put side by side, and the layer that does; None: any
            number (default: None).

    Returns:
        Counts of the graph, and warnings.

    Raises:
        GraphError: training is impossible. The error names the table, the column, the number of rows, an example and
            what to do.

    Example:
        >>> check_graph(Graph.read("digits"), task="classification", outputs=10, in_channels=64).vertices
        1797
    """
    demands = Demands(task, outputs, in_channels, normalised_weights, reads, types, bounds, in_edges)
    try:
        if graph.origin != "spark":
            return check_arrays(graph.arrays(), demands, graph.given_types)
        from lotan.validation.frames import check_frames  # imported here because it needs Spark

        return check_frames(graph, demands)
    except GraphError as error:
        raise _as_given(error, graph.names) from error.__cause__


def _as_given(error: GraphError, names: ColumnNames) -> GraphError:
    """Return an error that begins with the name of a column, with the user's name in its place.

    >>> _as_given(GraphError("vertices.label: 1 labels that are no classes."), ColumnNames(label="segment"))
    GraphError('vertices.segment: 1 labels that are no classes.')
    """
    place, colon, problem = str(error).partition(": ")
    table, dot, column = place.partition(".")
    if not (colon and dot and table in ("vertices", "edges")):
        return error
    return GraphError(f"{table}.{names.as_given(table, column)}: {problem}")
