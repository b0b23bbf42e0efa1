"""Graphs as two tables, in memory, in files or in Spark. `Graph` is the class that users make."""

from lotan.graph.arrays import GraphArrays
from lotan.graph.fingerprint import fingerprint
from lotan.graph.graph import Graph

__all__ = ["Graph", "GraphArrays", "fingerprint"]
