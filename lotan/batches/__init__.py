"""Mini-batches: the order of examples, the sampled graphs, and their preparation beside the computation."""
