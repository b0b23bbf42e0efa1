"""Graphs as two tables, in memory, in files or in Spark. `Graph` and `HeteroGraph` are the classes that users make."""

from lotan.graph.arrays import GraphArrays
from lotan.graph.fingerprint import fingerprint
from lotan.graph.graph import Graph
from lotan.graph.hetero_graph import HeteroGraph

__all__ = ["Graph", "GraphArrays", "HeteroGraph", "fingerprint"]
