"""A graph as two tables: in memory, in files or in Spark; see `Graph`."""

from lotan.graph.arrays import GraphArrays
from lotan.graph.fingerprint import fingerprint
from lotan.graph.graph import Graph

__all__ = ["Graph", "GraphArrays", "fingerprint"]
