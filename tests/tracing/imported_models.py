"""Models as people write them with PyG or plain torch, some of which can be traced."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lotan.nn import GCNConv as OwnGCNConv

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg
    import torch_geometric.utils
    from torch_geometric.utils import (
        add_remaining_self_loops,
        add_self_loops,
        degree,
        remove_self_loops,
        scatter,
        segregate_self_loops,
        softmax,
    )


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


class Tutorial(pyg.MessagePassing):
    """The layer of PyG's tutorial, which adds self-loops beside those that are there."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.lin = torch.nn.Linear(6, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        x = self.lin(x)
        row, col = edge_index
        deg_inv_sqrt = degree(col, x.size(0), dtype=x.dtype).pow(-0.5)
        deg_inv_sqrt[deg_inv_sqrt == float("inf")] = 0
        return self.propagate(edge_index, x=x, norm=deg_inv_sqrt[row] * deg_inv_sqrt[col])

    def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
        return norm.view(-1, 1) * x_j


class LoopsTwice(torch.nn.Module):
    """Attention and means over edges that have several self-loops at a vertex."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(6, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.lin(x)
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        row, col = edge_index
        score = softmax((x[row] * x[col]).sum(-1), col, num_nodes=x.size(0))
        out = scatter(score.unsqueeze(-1) * x[row], col, 0, x.size(0), "sum")
        return out + scatter(x[row] - x[col], col, 0, x.size(0), "mean") + scatter(x[row], col, 0, x.size(0), "max")


class WithoutLoops(torch.nn.Module):
    """Edges without their self-loops, chosen in three ways."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(6, 3, aggr=["mean", "max"])
        self.attention = pyg.GATConv(6, 3, add_self_loops=False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        rest, weight = remove_self_loops(edge_index, edge_weight)
        mask = edge_index[0] != edge_index[1]
        others, _, own, _ = segregate_self_loops(edge_index)
        out = self.conv(x, edge_index[:, mask]) + self.attention(x, others) - self.conv(x, own)
        return out + scatter(out[rest[0]] * weight[:, None], rest[1], 0, x.size(0))


class Attributes(torch.nn.Module):
    """Attributes that a layer of the model has changed before self-loops are added."""

    def __init__(self) -> None:
        super().__init__()
        self.code = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(inplace=True))
        self.first = pyg.GATv2Conv(6, 8, edge_dim=4)  # the mean of a vertex's in-edges, for all self-loops
        self.second = pyg.GINEConv(torch.nn.Linear(8, 3), edge_dim=4)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        code = self.code(edge_attr)
        return self.second(self.first(x, edge_index, code).relu(), edge_index, code)


class Fills(torch.nn.Module):
    """Every way to fill in the attributes of self-loops."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(6, 2)
        self.fills = [None, 2.5, torch.tensor([0.5, -1.0]), torch.tensor([[0.25, 3.0]]), "mean", "add", "max", "min"]

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, edge_weight: Tensor) -> Tensor:
        x = self.lin(x)
        out = x
        rest, of_rest = remove_self_loops(edge_index, edge_attr)
        for fill in self.fills:
            every, given = add_remaining_self_loops(edge_index, edge_attr, fill, x.size(0))
            out = out + scatter(x[every[0]] * given, every[1], 0, x.size(0))
            every, given = add_remaining_self_loops(edge_index, edge_attr.sin(), fill, x.size(0))
            out = out - scatter(x[every[0]] * given, every[1], 0, x.size(0))
            every, given = add_self_loops(rest, of_rest, fill, x.size(0))
            out = out * 0.5 + scatter(x[every[0]] * given, every[1], 0, x.size(0))
        for fill in (3, "mean"):
            every, given = add_remaining_self_loops(edge_index, edge_weight, fill, x.size(0))
            out = out + scatter(x[every[0]] * given[:, None], every[1], 0, x.size(0))
        rest, given = remove_self_loops(every, given)
        return out + scatter(x[rest[0]] * given[:, None], rest[1], 0, x.size(0))


class Improved(torch.nn.Module):
    """Self-loops of weight 2, and normalisation by weights that the model computes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.GCNConv(6, 8, improved=True), pyg.GCNConv(8, 3)
        self.gate = torch.nn.Linear(2, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, edge_weight: Tensor) -> Tensor:
        weight = self.gate(edge_attr).sigmoid().squeeze(-1) * edge_weight
        return self.conv2(self.conv1(x, edge_index, edge_weight).relu(), edge_index, weight)


class Relations(torch.nn.Module):
    """Types of edges: looked up, compared, and normalised within."""

    def __init__(self) -> None:
        super().__init__()
        self.first = pyg.RGATConv(6, 4, num_relations=3, attention_mechanism="within-relation", heads=2, edge_dim=2)
        torch.nn.init.zeros_(self.first.l2)  # which PyG leaves as memory was, NaN or any number
        self.second = pyg.FastRGCNConv(8, 3, num_relations=3, num_bases=2)
        self.embedding = torch.nn.Embedding(4, 3)  # of the types and the self-loops
        self.weights = torch.nn.Linear(4, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor, edge_attr: Tensor) -> Tensor:
        out = self.second(self.first(x, edge_index, edge_type, edge_attr).tanh(), edge_index, edge_type)
        every, types = add_remaining_self_loops(edge_index, edge_type, 3, num_nodes=x.size(0))
        given = self.embedding(types) * self.weights(F.one_hot(types, 4).float())
        return out + scatter(given, every[1], 0, x.size(0))


class Hetero(torch.nn.Module):
    """Types of vertices that the model reads out of the features."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.HEATConv(6, 4, 2, 3, 2, 2, 2, heads=2)
        self.norm = pyg.HeteroLayerNorm(8, num_types=2)
        self.lin = pyg.HeteroLinear(8, 3, num_types=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor, edge_attr: Tensor) -> Tensor:
        types = (x[:, 0] > 0).long()
        return self.lin(self.norm(self.conv(x, edge_index, types, edge_type, edge_attr), types), types)


class Directed(torch.nn.Module):
    """Layers along the edges and against them, with values of edges of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = pyg.DirGNNConv(pyg.GATConv(6, 4, heads=2, concat=False, dropout=0.4), root_weight=False)
        self.second = pyg.DirGNNConv(pyg.GCNConv(4, 4))
        self.third = pyg.DirGNNConv(pyg.SAGEConv(4, 3, aggr=["mean", "max", "softmax"]))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.second(self.first(x, edge_index).relu(), edge_index).relu()
        return self.third(x, edge_index)


class Against(torch.nn.Module):
    """Layers whose messages flow from where edges end, with self-loops, attributes and types."""

    def __init__(self) -> None:
        super().__init__()
        flow = {"flow": "target_to_source"}
        self.gcn, self.own = pyg.GCNConv(6, 4, **flow), pyg.GCNConv(4, 4, improved=True, **flow)
        self.gat = pyg.GATv2Conv(4, 4, edge_dim=2, fill_value="mean", **flow)
        self.mf, self.cluster = pyg.MFConv(4, 4, max_degree=3, **flow), pyg.ClusterGCNConv(4, 4, **flow)
        self.types = pyg.RGCNConv(4, 3, num_relations=3, **flow)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Tensor, edge_type: Tensor
    ) -> Tensor:
        x = self.own(self.gcn(x, edge_index, edge_weight).relu(), edge_index, edge_weight).tanh()
        x = self.gat(x, edge_index, edge_attr).tanh() + self.cluster(x, edge_index)
        return self.types(self.mf(x, edge_index).tanh(), edge_index, edge_type)


class TurnedRound(torch.nn.Module):
    """Every way to turn edges round, and to aggregate where edges begin."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(6, 3)
        self.attention = pyg.GATConv(3, 3, edge_dim=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, edge_weight: Tensor) -> Tensor:
        x = self.lin(x)
        row, col = edge_index
        out = scatter(x[col] * edge_weight[:, None], row, 0, x.size(0))
        for turned in (edge_index.flip([0]), edge_index.flip(0), torch.stack([col, row]), edge_index[[1, 0]]):
            out = out * 0.5 + scatter(x[turned[0]] + x[turned[1]], turned[1], 0, x.size(0), "mean")
        turned = edge_index.flip(dims=(0,))
        out = out + scatter(x[col] - x[row], row, 0, x.size(0), "max") + self.attention(x, turned, edge_attr)
        heavy = turned[:, edge_weight > 0.9]
        out = out + scatter(x[heavy[0]], heavy[1], 0, x.size(0), "min")
        rest, weight = remove_self_loops(turned, edge_weight)
        every, weight = add_self_loops(rest, weight, "mean", x.size(0))
        out = out + scatter(x[every[0]] * weight[:, None], every[1], 0, x.size(0))
        share = softmax((x[row] * x[col]).sum(-1), row, num_nodes=x.size(0))  # of the edges that begin at a vertex
        out = out + scatter(share[:, None] * x[row], col, 0, x.size(0)) + degree(turned[1], x.size(0))[:, None]
        share = softmax((x[row] * x[col]).sum(-1), col, num_nodes=x.size(0))
        return out + scatter(share[:, None] * x[col], row, 0, x.size(0))


class Chebyshevs(torch.nn.Module):
    """Chebyshev polynomials of each Laplacian."""

    def __init__(self) -> None:
        super().__init__()
        kinds = ("sym", "rw", None)
        self.convs = torch.nn.ModuleList(pyg.ChebConv(6, 3, K=3, normalization=kind) for kind in kinds)
        self.last = pyg.ChebConv(3, 3, K=1, flow="target_to_source")

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        unweighted = self.convs[0](x, edge_index)
        x = sum(conv(x, edge_index, edge_weight, lambda_max=3.0) for conv in self.convs)
        return self.last(x + unweighted, edge_index)


class Hypergraph(torch.nn.Module):
    """Hyperedges with attention, among vertices or among hyperedges."""

    def __init__(self) -> None:
        super().__init__()
        attention = {"use_attention": True, "heads": 2, "concat": False}
        self.node = pyg.HypergraphConv(6, 3, attention_mode="node", **attention)
        self.edge = pyg.HypergraphConv(6, 3, attention_mode="edge", **attention)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.node(x, edge_index, hyperedge_attr=x.sin()) + self.edge(x, edge_index, hyperedge_attr=x.cos())


class ChosenLoops(torch.nn.Module):
    """Layers that add self-loops to the edges that a mask chose, where some vertices have self-loops that it left out."""

    def __init__(self) -> None:
        super().__init__()
        self.each = torch.nn.ModuleList(pyg.GCNConv(6, 4, improved=kind == 1) for kind in range(3))
        self.attention = pyg.GATConv(4, 3, edge_dim=2, fill_value="mean")

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Tensor, edge_type: Tensor
    ) -> Tensor:
        masks = [edge_type == kind for kind in range(3)]
        x = sum(conv(x, edge_index[:, mask], edge_weight[mask]) for conv, mask in zip(self.each, masks, strict=True))
        x = x.relu() + self.each[0](
            x.sin() @ self.each[0].lin.weight, edge_index.flip(0)[:, masks[1]], edge_weight[masks[1]]
        )
        return self.attention(x, edge_index[:, masks[1]], edge_attr[masks[1]])


def in_a_closure() -> torch.nn.Module:
    """A class that is made by a function, where the functions of PyG have names of their own."""
    from torch_geometric.utils import add_remaining_self_loops as whole
    from torch_geometric.utils import softmax as share

    functions = {"scatter": scatter}

    class Elsewhere(torch.nn.Module):
        without_loops = staticmethod(remove_self_loops)

        def __init__(self) -> None:
            super().__init__()
            self.lin, self.add = torch.nn.Linear(6, 3), partial(add_self_loops, fill_value=1.0)

        def forward(self, x: Tensor, edge_index: Tensor, count: Any = degree) -> Tensor:
            edge_index, _ = self.add(self.without_loops(edge_index)[0], num_nodes=x.size(0))
            edge_index, _ = whole(edge_index, num_nodes=x.size(0))
            scores = share(self.lin(x)[edge_index[0]], edge_index[1], num_nodes=x.size(0))
            out = functions["scatter"](scores * x[edge_index[0], :3], edge_index[1], 0, x.size(0))
            return out + count(edge_index[1], x.size(0))[:, None]

    return Elsewhere()


TRACED = {
    "Elsewhere": in_a_closure,
    "GroupedDNA": lambda: pyg.Sequential(
        "x, edge_index",
        [
            (torch.nn.Linear(6, 8), "x -> x"),
            (lambda x: torch.stack([x, x.relu()], 1), "x -> x"),
            (pyg.DNAConv(8, heads=4, groups=2), "x, edge_index -> x"),
        ],
    ),
    "Directed": Directed,
    "Against": Against,
    "TurnedRound": TurnedRound,
    "Chebyshevs": Chebyshevs,
    "Hypergraph": Hypergraph,
    "Tutorial": Tutorial,
    "LoopsTwice": LoopsTwice,
    "WithoutLoops": WithoutLoops,
    "Attributes": Attributes,
    "Fills": Fills,
    "Improved": Improved,
    "Relations": Relations,
    "Hetero": Hetero,
    "Example": Example,
    "OwnLayer": OwnLayer,
    "PlainTorch": PlainTorch,
    "Chosen": Chosen,
    "ChosenLoops": ChosenLoops,
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


class BothDirections(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        both = torch.cat([edge_index, edge_index.flip([0])], dim=1)  # rearranges the edges | undirected=True
        return scatter(self.lin(x)[both[0]], both[1], 0, x.size(0))


class Sorted(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(x)[edge_index.flip([1])[0]]  # rearranges the edges


class Numbers(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        size = edge_index.max()  # pass num_nodes=x.size(0)
        return self.lin(x)[:size]


class Compares(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        loops = edge_index[0] == 0  # compares an end of edges
        return scatter(self.lin(x)[edge_index[0]] * loops[:, None], edge_index[1], 0, x.size(0))


class WeightedLoopsTwice(Refused):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        edge_index, weight = add_self_loops(edge_index, edge_weight)  # call remove_self_loops first
        return scatter(self.lin(x)[edge_index[0]] * weight[:, None], edge_index[1], 0, x.size(0))


class LoopsOfSome(Refused):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        edge_index, _ = add_self_loops(edge_index[:, edge_weight > 1])  # call add_remaining_self_loops instead
        return scatter(self.lin(x)[edge_index[0]], edge_index[1], 0, x.size(0))


class VectorsOfSome(Refused):
    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, edge_type: Tensor) -> Tensor:
        some = edge_type == 1
        index, values = add_remaining_self_loops(edge_index[:, some], edge_attr[some])  # with vectors or types
        return scatter(self.lin(x)[index[0]] * values[:, :1], index[1], 0, x.size(0))


class UnknownFill(Refused):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GATConv(6, 3, edge_dim=2, fill_value="mul")

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.conv(x, edge_index, edge_attr)  # (torch_geometric GATConv) | the value 'mul' | mean, add, max, min


class WrongWidth(Refused):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.TransformerConv(6, 3, edge_dim=5)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.conv(x, edge_index, edge_attr)  # layer 'conv.lin_edge' | rows of width 2, but its in_channels is 5


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


class OrderedAggregation(Refused):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv((6, 6), 3, aggr=pyg.aggr.LCMAggregation(6, 6))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)  # LCMAggregation is not supported | nearest that works is LSTMAggregation


class NearestQuantile(Refused):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(6, 3, aggr=pyg.aggr.QuantileAggregation(0.5, "nearest"))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)  # rounds halves by a vertex's position | 'lower'


class QuantileOfSome(Refused):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(6, 3, aggr="median")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index[:, edge_index[0] != edge_index[1]])  # over all edges of the graph


class Chebyshev(Refused):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.ChebConv(6, 3, K=2, normalization=None)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)  # layer 'conv' (torch_geometric ChebConv) | pass lambda_max


class LoopsOfAnyNumber(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index, _ = add_self_loops(edge_index)  # up to the greatest number in edge_index | num_nodes=x.size(0)
        return scatter(self.lin(x)[edge_index[0]], edge_index[1], 0, x.size(0))


class Pools(Refused):
    def __init__(self) -> None:
        super().__init__()
        self.pool = pyg.TopKPooling(6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(self.pool(x, edge_index)[0])  # TopKPooling is not supported | keeps all vertices


class SparseMatrix(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        matrix = torch.sparse_coo_tensor(edge_index, torch.ones(edge_index.size(1)))  # aggregate with a layer of PyG
        return matrix @ self.lin(x)


class LoopsByHand(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        loops = torch.arange(x.size(0)).repeat(2, 1)
        whole = torch.cat([edge_index, loops], dim=1)  # self-loops by torch_geometric.utils.add_self_loops
        return scatter(self.lin(x)[whole[0]], whole[1], 0, x.size(0))


class WithoutFeatures(Refused):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.FastRGCNConv(40, 3, num_relations=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.conv(None, edge_index, edge_type)  # FastRGCNConv is called without | pass rows.weight


class NumbersForFeatures(Refused):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.RGCNConv(40, 3, num_relations=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.conv(x[:, 0].long(), edge_index, edge_type)  # RGCNConv is called without features | 'conv'


class Undirected(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        both = torch_geometric.utils.to_undirected(edge_index)  # give undirected=True where the graph is made
        return scatter(self.lin(x)[both[0]], both[1], 0, x.size(0))


class Negatives(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        src, dst = torch_geometric.utils.negative_sampling(edge_index)  # draws pairs of vertices | lotan.LinkPrediction
        return self.lin(x)[src] - self.lin(x)[dst]


class MatrixOfEdges(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        matrix = torch_geometric.utils.to_torch_csr_tensor(edge_index)  # makes a matrix | torch_geometric.utils.scatter
        return matrix @ self.lin(x)


class MasksColumns(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x, _ = torch_geometric.utils.mask_feature(x, 0.3)  # with mode='col', its default | mode='row' or mode='all'
        return scatter(self.lin(x)[edge_index[0]], edge_index[1], 0, x.size(0))


class EndsOfEnds(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(x)[torch.index_select(edge_index[0], 0, edge_index[1])]  # indexes edge_index by itself


class GathersColumns(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(x).gather(1, edge_index[0])  # indexes by edges in another dimension than the first


class GathersNarrowly(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(x).gather(0, edge_index[0])  # gather by edges takes an index as wide as the rows | x[index]


class SourcesTwice(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        row, col = edge_index[[0, 0]]  # rearranges the edges
        return scatter(self.lin(x)[row], col, 0, x.size(0))


class StacksSources(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        row, col = torch.stack([edge_index[0], edge_index[0]])  # rearranges the edges
        return scatter(self.lin(x)[row], col, 0, x.size(0))


class IndexesThirdDimension(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(x).unsqueeze(1)[:, 0, edge_index[0]]  # indexes by edges in another dimension than the first


class ReducesByProduct(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        made, index = self.lin(x)[edge_index[0]], edge_index[1].unsqueeze(1).expand(-1, 3)
        return torch.zeros(x.size(0), 3).scatter_reduce(0, index, made, "prod")  # reduces by 'prod'


class ReducesWithSelf(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        made, index = self.lin(x)[edge_index[0]], edge_index[1].unsqueeze(1).expand(-1, 3)
        return torch.zeros(x.size(0), 3).scatter_reduce(0, index, made, "amax")  # pass include_self=False


class ReducesIntoRows(Refused):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        made, index = self.lin(x)[edge_index[0]], edge_index[1].unsqueeze(1).expand(-1, 3)
        return self.lin(x).scatter_reduce(0, index, made, "amax", include_self=False)  # start from zeros


REFUSED = tuple(kind for kind in Refused.__subclasses__())
