"""Layers and models. Each works eagerly, `layer(x, edge_index)`, and is what a `lotan.Trainer` plans."""

from lotan.nn.edge_index import EdgeIndex, Edges, aggregate, edge_softmax
from lotan.nn.gcn_conv import GCNConv
from lotan.nn.linear import Linear
from lotan.nn.message_passing import MessagePassing

__all__ = ["EdgeIndex", "Edges", "GCNConv", "Linear", "MessagePassing", "aggregate", "edge_softmax"]
