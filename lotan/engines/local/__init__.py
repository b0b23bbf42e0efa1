"""The local engine: columns are torch tensors of this process."""
