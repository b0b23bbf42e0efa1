"""The rows engine: propagate, collect and pipe as Spark DataFrames."""
