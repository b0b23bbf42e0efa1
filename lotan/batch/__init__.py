"""Many models over the same passes."""
