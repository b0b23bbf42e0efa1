"""Link prediction: the links of a graph, negatives, decoders, the loss over pairs, and ranks."""
