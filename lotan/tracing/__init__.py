"""Tracing, which turns a model made of torch modules into a `planner.spec.Spec`.

`recording` runs the model once on fake tensors, which have shapes and no data. Their numbers of vertices and edges are
symbols. torch.fx records every operator before autograd or decompositions take it apart. `transcript` turns the recording
into calls in one canonical form (`forms`) and refuses operators that mix rows (`lotan.stages.row_wise`). `check` compares the
calls with the model itself on a small graph.
"""
