"""The links of a graph in Spark. The driver holds their ends, relations and splits; features and messages stay in Spark."""

from __future__ import annotations

from lotan.graph.graph import Graph
from lotan.links.examples import TRAIN, LinkGraph, links_of, numbered_as_trained, require_one_type
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
    links = links_of(graph.ids, edges, graph.undirected, task)
    types = edges.edge_type if edges.edge_type is not None else links.relation
    drawn = None if task.shares is None else DrawnSplits(task.shares, task.seed)
    messages = graph.messages_in_spark(links.names, drawn)
    return LinkGraph(messages, links, graph.ids, None if types is None else types[links.split == TRAIN])


def messages_on_spark(
    graph: Graph, fractions: tuple[float, float] | None = None, seed: int = 0, names: tuple[int | str, ...] = ()
) -> Graph:
    """Return the graph along which messages pass when a trained model predicts. It stays in Spark, and so do its links.

    Args:
        graph: The graph. If its edges have no column `split`, all of them carry messages, unless there are fractions.
        fractions: The shares of validation and test that a hash drew in training; None: none.
        seed: The seed of that hash.
        names: The relations of training, by whose numbers those of the graph are types of its edges.

    Raises:
        GraphError: If the graph has several types of vertices, or a relation or a split of its edges cannot be read.
    """
    require_one_type(graph)
    relations = numbered_as_trained(graph.relations_in_spark(), names)
    return graph.messages_in_spark(relations, None if fractions is None else DrawnSplits(fractions, seed))
