"""The layers and models. Each can be called eagerly, `layer(x, edge_index)`, or planned by a `lotan.Trainer`."""

from lotan.nn.edge_index import EdgeIndex, Edges, aggregate, edge_softmax
from lotan.nn.gat_conv import GATConv
from lotan.nn.gcn_conv import GCNConv
from lotan.nn.gin_conv import GINConv
from lotan.nn.learned_features import LearnedFeatures
from lotan.nn.learned_rows import LearnedRows
from lotan.nn.linear import Linear
from lotan.nn.message_passing import MessagePassing
from lotan.nn.mlp import MLP
from lotan.nn.models import GAT, GCN, GIN, GraphSAGE, JumpingKnowledge
from lotan.nn.resolver import BatchNorm, LayerNorm
from lotan.nn.sage_conv import SAGEConv

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "MLP",
    "BatchNorm",
    "EdgeIndex",
    "Edges",
    "GATConv",
    "GCNConv",
    "GINConv",
    "GraphSAGE",
    "JumpingKnowledge",
    "LayerNorm",
    "LearnedFeatures",
    "LearnedRows",
    "Linear",
    "MessagePassing",
    "SAGEConv",
    "aggregate",
    "edge_softmax",
]
