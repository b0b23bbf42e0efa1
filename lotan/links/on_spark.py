"""The links of a graph in Spark. The driver holds their ends, relations and splits; features and messages stay in Spark."""

from __future__ import annotations

from lotan.graph.arrays import EdgeColumns
from lotan.graph.graph import Graph
from lotan.links.examples import TRAIN, LinkGraph, Links, links_of, links_that_train, require_one_type
from lotan.links.splits import DrawnSplits
from lotan.settings.tasks import LinkPrediction


def links_on_spark(graph: Graph, task: LinkPrediction) -> LinkGraph:
    """Return the links of a graph in Spark, and the graph without the links of validation and test, which stays there.

    Links have the order in which Spark returns the edges. It is that of the table, unless the table is itself the result
    of a shuffle.

    Raises:
        GraphError: If links have no splits, the same link is in two splits, there are none of training, or the graph has
            several types of vertices.
    """
    require_one_type(graph)
    edges = graph.links_in_spark()
    return _with_messages(graph, edges, links_of(graph.ids, edges, graph.undirected, task), task.shares, task.seed)


def messages_on_spark(graph: Graph, fractions: tuple[float, float] | None = None, seed: int = 0) -> Graph:
    """Return the graph along which messages pass when a trained model predicts, which stays in Spark.

    Args:
        graph: The graph. If its edges have no column `split`, all of them carry messages, unless there are fractions.
        fractions: The shares of validation and test that a hash drew in training; None: none.
        seed: The seed of that hash.

    Raises:
        GraphError: If the graph has several types of vertices.
    """
    require_one_type(graph)
    edges, shares = graph.links_in_spark(), fractions or (0.0, 0.0)
    links = links_that_train(graph.ids, edges, graph.undirected, shares, seed)
    return _with_messages(graph, edges, links, shares, seed).graph


def _with_messages(
    graph: Graph, edges: EdgeColumns, links: Links, shares: tuple[float, float] | None, seed: int
) -> LinkGraph:
    drawn = DrawnSplits(shares, seed) if edges.split is None and shares is not None else None
    types = edges.edge_type if edges.edge_type is not None else links.relation
    messages = graph.messages_in_spark(links.names, drawn)
    return LinkGraph(messages, links, graph.ids, None if types is None else types[links.split == TRAIN])
