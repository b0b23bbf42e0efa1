"""The checks of a graph before the first epoch: of one in memory, and of one in Spark."""
