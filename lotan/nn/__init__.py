"""The layers and models. Each can be called eagerly, `layer(x, edge_index)`, or planned by a `lotan.Trainer`.

They are for models without PyTorch Geometric. A model with other layers of PyG trains as it is. Imported GCN, SAGE, GIN and
GAT layers have the plans of those here, so further layers would be no faster than imported ones.
"""

from typing import Any

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


def __getattr__(name: str) -> Any:
    """Say where a layer is that PyTorch Geometric has and this package has not."""
    if name.startswith("_"):
        raise AttributeError(f"module 'lotan.nn' has no attribute {name!r}")
    raise AttributeError(
        f"module 'lotan.nn' has no {name!r}, because layers of PyG train as they are: if torch_geometric.nn has {name}, use it "
        "in the model"
    )
