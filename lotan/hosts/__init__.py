"""The processes beside this one: Spark, the Router and workers, and the files that they need."""
