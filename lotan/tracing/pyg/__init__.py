"""The importer, which traces models that take `edge_index` as a tensor, such as those written with PyG.

While such a model runs, `mode` watches its torch functions. It knows which tensors are edges and which are one end of
them (`edge_tensors`), and calls a graph operator of `planner.spec` in place of indexing and scattering by an end. Some
functions of PyG depend on the values of edges. `leaves` replaces these while a trace runs, and `layers` replaces a few
whole layers. PyG is not needed, and is not imported unless the model's own code has imported it.
"""
