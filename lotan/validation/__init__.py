"""Bad graphs are found before the first epoch: see `check_graph`."""

from __future__ import annotations

from lotan.graph import Graph
from lotan.validation.arrays import check_arrays
from lotan.validation.demands import Demands, GraphReport
from planner.spec import Task

__all__ = ["Demands", "GraphReport", "check_graph"]


def check_graph(
    graph: Graph,
    task: Task | None,
    outputs: int | None,
    in_channels: int | None,
    normalised_weights: bool = False,
) -> GraphReport:
    """Check a graph, and its fit with a model and a task; in Spark (five jobs) where its tables are there.

    A graph whose files Spark shall read is checked there as `graph.on_spark(spark)`.

    Args:
        graph: to check.
        task: what is trained; None to look at neither labels nor splits, as for predictions.
        outputs: width of the model's output; None for any.
        in_channels: width the model expects; None for any.
        normalised_weights: whether a layer takes roots of summed weights (GCN), which must then not be negative.

    Raises:
        GraphError: the first thing that makes training impossible, with table, column, count, an example and what to do.
    """
    demands = Demands(task, outputs, in_channels, normalised_weights)
    if graph.origin != "spark":
        return check_arrays(graph.arrays(), demands)
    from lotan.validation.frames import check_frames  # the one that needs Spark

    return check_frames(graph, demands)
