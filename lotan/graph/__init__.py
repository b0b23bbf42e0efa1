"""Graphs as two tables, in memory, in files or in Spark. `Graph` and `HeteroGraph` are the classes that users make."""
