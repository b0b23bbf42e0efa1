"""Partitioned storage: a graph and its learned rows on a disk, of which some partitions are in memory at one time."""
