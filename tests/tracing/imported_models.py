"""Models as people write them with PyG or plain torch, some of which can be traced."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor

from lotan.nn import GCNConv as OwnGCNConv

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg
    from torch_geometric.utils import add_self_loops, degree, scatter, softmax


class Example(torch.nn.Module):
    """The GCN of PyG's examples."""

    def __init__(self, in_channels: int = 6, hidden_channels: int = 8, out_channels: int = 3) -> None:
        super().__init__()
        self.conv1 = pyg.GCNConv(in_channels, hidden_channels, cached=True, normalize=True)
        self.conv2 = pyg.GCNConv(hidden_channels, out_channels, cached=True, normalize=True)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index, edge_weight).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index, edge_weight)


class OwnLayer(pyg.MessagePassing):
    """A layer of a user's own, with the library's functions."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.lin = torch.nn.Linear(6, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        row, col = edge_index
        scale = degree(col, x.size(0), dtype=x.dtype).clamp(min=1).pow(-0.5)
        return self.propagate(edge_index, x=self.lin(x), norm=scale[row] * scale[col])

    def message(self, x_j: Tensor, x_i: Tensor, norm: Tensor, index: Tensor, size_i: int) -> Tensor:
        score = softmax((x_j * x_i).sum(-1), index, num_nodes=size_i)
        return (norm * score).unsqueeze(-1) * x_j


class PlainTorch(torch.nn.Module):
    """Message passing with torch's own functions: every way to write an index and a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(6, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        x = self.lin(x)
        source, target = edge_index[0], edge_index[1, :]
        messages = x[source] * edge_weight[:, None] + x.index_select(0, target)
        out = torch.zeros_like(x)
        out.index_add_(0, target, messages)
        wide = target.view(-1, 1).expand_as(messages)
        out = out + torch.zeros(x.size(0), 3).scatter_add_(0, wide, messages)
        out = out + x.new_zeros(x.shape).scatter_reduce(0, wide, messages, "amax", include_self=False)
        count = torch.zeros(x.size(0)).index_add(0, target, torch.ones(target.numel()))
        return out / count.clamp(min=1).unsqueeze(-1) + scatter(x[source][:, :1], target, 0, x.size(0), "mean")


class Chosen(torch.nn.Module):
    """Sums, means and maxima over edges that a mask chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(pyg.SAGEConv(6, 3, aggr=aggr) for aggr in ("sum", "mean", "max", "min"))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        heavy = edge_index[:, edge_weight > 0.9]
        return sum(conv(x, heavy) for conv in self.convs)


class ChosenWeights(torch.nn.Module):
    """Edges that a mask chooses, with their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GraphConv(6, 3, aggr="mean")

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        heavy = edge_weight > 0.9
        return self.conv(x, edge_index[:, heavy], edge_weight[heavy])


class Moved(torch.nn.Module):
    """Tensors that are moved to the device where they are."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(6, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        device = torch.device("cpu")
        return self.conv(x.to(device), edge_index.to(device)).pow_(2).cpu()


class OwnAndTheirs(torch.nn.Module):
    """Layers of both libraries in one model."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = OwnGCNConv(6, 8), pyg.GraphConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Sparse(torch.nn.Module):
    """The name that the Open Graph Benchmark gives to edges."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(6, 3)

    def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
        return self.conv(x, adj_t).log_softmax(dim=-1)


TRACED = {
    "Example": Example,
    "OwnLayer": OwnLayer,
    "PlainTorch": PlainTorch,
    "Chosen": Chosen,
    "ChosenWeights": ChosenWeights,
    "Moved": Moved,
    "OwnAndTheirs": OwnAndTheirs,
    "Sparse": Sparse,
    "GCN": lambda: pyg.GCN(6, 8, 2, 3, dropout=0.5, jk="cat"),
    "GraphSAGE": lambda: pyg.GraphSAGE(6, 8, 2, 3, aggr=["mean", "std"]),
    "GIN": lambda: pyg.GIN(6, 8, 2, 3),
    "GATv2": lambda: pyg.GAT(6, 8, 2, 3, v2=True, heads=2),
    "PNA": lambda: pyg.PNA(
        6, 8, 2, 3, aggregators=["mean", "max"], scalers=["identity", "amplification"], deg=torch.tensor([1, 2, 3])
    ),
    "EdgeCNN": lambda: pyg.EdgeCNN(6, 8, 2, 3),
    "MLP": lambda: pyg.MLP([6, 8, 3], norm=None),
    "Sequential": lambda: pyg.Sequential("x, edge_index", [(pyg.GINConv(torch.nn.Linear(6, 3)), "x, edge_index -> x")]),
}


class Refused(torch.nn.Module):
    """The base of models that are refused. The comment at a line has the words of its error."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(6, 3)


class Turned(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return scatter(self.lin(x)[edge_index[0]], edge_index.flip([0])[1], 0, x.size(0))  # turns the edges round


class TurnedByList(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(x)[edge_index[[1, 0]][0]]  # turns the edges round


class SumsWhereEdgesBegin(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return scatter(self.lin(x)[edge_index[1]], edge_index[0], 0, x.size(0))  # aggregates where edges begin


class Numbers(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        size = edge_index.max()  # pass num_nodes=x.size(0)
        return self.lin(x)[:size]


class Compares(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        loops = edge_index[0] == edge_index[1]  # compares the ends of edges
        return scatter(self.lin(x)[edge_index[0]] * loops[:, None], edge_index[1], 0, x.size(0))


class LoopsTwice(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))  # call remove_self_loops first
        return scatter(self.lin(x)[edge_index[0]], edge_index[1], 0, x.size(0))


class SomeEdges(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        row, col = edge_index[:, :10]  # choose them by a mask
        return scatter(self.lin(x)[row], col, 0, x.size(0))


class Product(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return scatter(self.lin(x)[edge_index[0]], edge_index[1], 0, x.size(0), "mul")  # aggregates by 'mul'


class TwoHops(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(x)[edge_index[0][edge_index[1]]]  # indexes edge_index by itself


class Matrix(Refused):
    def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
        return adj_t @ self.lin(x)  # it is no sparse matrix


class SparseTensor(Refused):
    def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
        return self.lin(adj_t.set_diag().matmul(x))  # no attribute 'set_diag' | no sparse matrix


class Improved(Refused):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(6, 3, improved=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)  # (torch_geometric GCNConv) | weight 2; only 1 | improved=False


class Against(Refused):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(6, 3, flow="target_to_source")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)  # layer 'conv.aggr_module' | flow='source_to_target'


class Median(Refused):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(6, 3, aggr="median")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)  # MedianAggregation is not supported | nearest that works is MeanAggregation


class Chebyshev(Refused):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.ChebConv(6, 3, K=2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)  # layer 'conv' (torch_geometric ChebConv) | nearest that works is TAGConv


class OfWeights(Refused):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GATConv(6, 3, edge_dim=1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return self.conv(x, edge_index, edge_weight.view(-1, 1))  # Build the layer with add_self_loops=False


REFUSED = tuple(kind for kind in Refused.__subclasses__())
