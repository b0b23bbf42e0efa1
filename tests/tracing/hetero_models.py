"""Models of PyG for several types of vertices, and a random graph on which they are compared with PyG."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg
    from torch_geometric.data import HeteroData

WIDTHS = {"paper": 6, "author": 4, "venue": 3}
COUNTS = {"paper": 20, "author": 12, "venue": 5}
RELATIONS = (
    ("author", "writes", "paper"),
    ("paper", "by", "author"),
    ("paper", "cites", "paper"),
    ("paper", "in", "venue"),
    ("venue", "has", "paper"),
)
CLASSES = 3
METADATA = list(WIDTHS), list(RELATIONS)
ATTRIBUTES = {RELATIONS[0]: 2, RELATIONS[2]: 3}
"""The numbers of attributes of the edges of some relations."""

Rows = dict[str, Tensor]
Edges = dict[tuple[str, str, str], Tensor]


def messy_data(seed: int = 0) -> HeteroData:
    """Widths that differ, self-loops and doubled ones, parallel edges, a hub, and vertices of each type without edges."""
    random = torch.Generator().manual_seed(seed)
    data = HeteroData()
    for name, count in COUNTS.items():
        data[name].x = torch.randn(count, WIDTHS[name], generator=random)
    data["paper"].y = torch.randint(0, CLASSES, (COUNTS["paper"],), generator=random)
    data["paper"].train_mask = torch.rand(COUNTS["paper"], generator=random) < 0.6
    for source, name, destination in RELATIONS:
        ends = [torch.randint(0, COUNTS[end] - 2, (30,), generator=random) for end in (source, destination)]
        index = torch.stack(ends)
        index[:, -1] = index[:, 0]  # parallel
        index[1, 10:18] = 0  # a hub
        if source == destination:
            index[:, 1:4] = torch.tensor([[1, 1, 2], [1, 1, 2]])
        data[source, name, destination].edge_index = index
    return data


def with_attributes(seed: int = 0) -> HeteroData:
    """The same, where edges of some relations have attributes, and not equally many."""
    data = messy_data(seed)
    random = torch.Generator().manual_seed(seed)
    for relation, width in ATTRIBUTES.items():
        data[relation].edge_attr = torch.randn(data[relation].edge_index.shape[1], width, generator=random)
    return data


class Attributed(torch.nn.Module):
    """Attributes of edges in attention, in messages, and in self-loops that get their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first = pyg.HeteroConv(
            {
                RELATIONS[0]: pyg.GATv2Conv((4, 6), 8, edge_dim=2, add_self_loops=False),
                RELATIONS[2]: pyg.GATConv(6, 8, edge_dim=3),
                RELATIONS[4]: pyg.SAGEConv((3, 6), 8),
            }
        )
        self.gated = torch.nn.Linear(2, 4)
        self.last = torch.nn.Linear(8, CLASSES)

    def forward(self, x_dict: Rows, edge_index_dict: Edges, edge_attr_dict: Edges) -> Tensor:
        paper = self.first(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)["paper"].relu()
        src, dst = edge_index_dict[RELATIONS[0]]
        messages = self.gated(edge_attr_dict[RELATIONS[0]]).sigmoid() * x_dict["author"][src]
        return self.last(paper) + torch.zeros_like(paper).index_add(0, dst, messages.repeat(1, 2))[:, :CLASSES]


class Mixed(torch.nn.Module):
    """A HeteroConv of other layers for each relation, two layers deep."""

    def __init__(self, aggr: str = "sum") -> None:
        super().__init__()
        self.first = pyg.HeteroConv(
            {
                RELATIONS[0]: pyg.SAGEConv((4, 6), 8),
                RELATIONS[1]: pyg.GATConv((6, 4), 4, heads=2, add_self_loops=False),
                RELATIONS[2]: pyg.GCNConv(6, 8),
                RELATIONS[3]: pyg.GraphConv((6, 3), 8, aggr="mean"),
                RELATIONS[4]: pyg.SAGEConv((3, 6), 8, aggr="max"),
            },
            aggr=aggr,
        )
        self.second = pyg.HeteroConv(
            {
                RELATIONS[0]: pyg.GATv2Conv((8, 8), 8, add_self_loops=False),
                RELATIONS[2]: pyg.GATConv(8, 8),
                RELATIONS[4]: pyg.SAGEConv((8, 8), 8),
            },
            aggr=aggr,
        )
        self.last = torch.nn.Linear(8, CLASSES)

    def forward(self, x_dict: Rows, edge_index_dict: Edges) -> Tensor:
        x_dict = {name: x.relu() for name, x in self.first(x_dict, edge_index_dict).items()}
        return self.last(self.second(x_dict, edge_index_dict)["paper"].relu())


class Plain(torch.nn.Module):
    """A model of one type of vertices, which `to_hetero` makes one of several."""

    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv((-1, -1), 8), pyg.SAGEConv((-1, -1), CLASSES)
        self.norm = torch.nn.BatchNorm1d(8) if norm else torch.nn.Identity()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x, edge_index)).relu(), edge_index)


class HAN(torch.nn.Module):
    """The model of PyG's example."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.HANConv(WIDTHS, 8, METADATA, heads=2)
        self.lin = torch.nn.Linear(8, CLASSES)

    def forward(self, x_dict: Rows, edge_index_dict: Edges) -> Tensor:
        return self.lin(self.conv(x_dict, edge_index_dict)["paper"])


class HGT(torch.nn.Module):
    """The model of PyG's example."""

    def __init__(self) -> None:
        super().__init__()
        self.lins = torch.nn.ModuleDict({name: pyg.Linear(width, 8) for name, width in WIDTHS.items()})
        self.convs = torch.nn.ModuleList(pyg.HGTConv(8, 8, METADATA, heads=2) for _ in range(2))
        self.lin = torch.nn.Linear(8, CLASSES)

    def forward(self, x_dict: Rows, edge_index_dict: Edges) -> Tensor:
        x_dict = {name: self.lins[name](x).relu_() for name, x in x_dict.items()}
        for conv in self.convs:
            x_dict = conv(x_dict, edge_index_dict)
        return self.lin(x_dict["paper"])


class Relational(torch.nn.Module):
    """RGCN with several types of vertices: a linear map for each relation, means, and one for the vertex itself."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [WIDTHS, dict.fromkeys(WIDTHS, 8)]
        self.relations = torch.nn.ModuleList(
            pyg.HeteroConv(
                {r: pyg.SAGEConv((of[r[0]], of[r[2]]), 8, root_weight=False, bias=False) for r in RELATIONS}, aggr="sum"
            )
            for of in sizes
        )
        self.own = torch.nn.ModuleList(
            torch.nn.ModuleDict({name: torch.nn.Linear(width, 8) for name, width in of.items()}) for of in sizes
        )
        self.norm = torch.nn.LayerNorm(8)
        self.last = torch.nn.Linear(8, CLASSES)

    def forward(self, x_dict: Rows, edge_index_dict: Edges) -> Rows:
        for relations, own in zip(self.relations, self.own, strict=True):
            summed = relations(x_dict, edge_index_dict)
            x_dict = {name: self.norm(own[name](x) + summed[name]).relu() for name, x in x_dict.items()}
        return {name: self.last(x) for name, x in x_dict.items()}


class Centred(torch.nn.Module):
    """Statistics of the vertices of one type."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.graph_norm = pyg.BatchNorm(4), pyg.GraphNorm(8)
        self.conv = pyg.SAGEConv((4, 6), 8)
        self.lin = torch.nn.Linear(8, CLASSES)

    def forward(self, x_dict: Rows, edge_index_dict: Edges) -> Tensor:
        x = self.conv((self.norm(x_dict["author"]), x_dict["paper"]), edge_index_dict[RELATIONS[0]])
        x = self.graph_norm(x).relu()
        return self.lin(x - x.mean(0) / (x.std(0) + 1.0)) + x_dict["venue"].sum(0)


class Turned(torch.nn.Module):
    """Relations turned round: sums, means, maxima, attention and self-loops where their edges begin."""

    def __init__(self) -> None:
        super().__init__()
        cites, turned = RELATIONS[2], {"flow": "target_to_source"}
        self.first = pyg.HeteroConv({cites: pyg.GCNConv(6, 8, **turned), RELATIONS[4]: pyg.SAGEConv((3, 6), 8)})
        self.attends = pyg.HeteroConv({cites: pyg.GATv2Conv(8, 8, **turned)})
        self.max = pyg.HeteroConv({cites: pyg.SAGEConv(8, 8, aggr="max", **turned)})
        self.to_author = pyg.GATConv((6, 4), 8, add_self_loops=False)
        self.mean = pyg.SAGEConv((8, 8), 8)
        self.to_paper = pyg.GraphConv((8, 8), CLASSES)

    def forward(self, x_dict: Rows, edge_index_dict: Edges) -> Tensor:
        author = self.to_author((x_dict["paper"], x_dict["author"]), edge_index_dict[RELATIONS[0]].flip(0)).tanh()
        paper = self.first(x_dict, edge_index_dict)["paper"].tanh()
        for layer in (self.attends, self.max):
            paper = paper + layer({"paper": paper}, edge_index_dict)["paper"].tanh()
        author = author + self.mean((paper, author), edge_index_dict[RELATIONS[0]].flip(0)).tanh()
        return self.to_paper((author, paper), edge_index_dict[RELATIONS[1]].flip(0))


def of_two(norm: bool = False) -> torch.nn.Module:
    """A converted model, whose lazy layers have seen data."""
    model: Any = pyg.to_hetero(Plain(norm), METADATA, aggr="sum")
    data = messy_data()
    with torch.no_grad():
        model.eval()(data.x_dict, data.edge_index_dict)
    return model.train()


MODELS = {
    "HeteroConv": Mixed,
    "HeteroConv, mean": lambda: Mixed("mean"),
    "to_hetero": of_two,
    "to_hetero with BatchNorm": lambda: of_two(norm=True),
    "HAN": HAN,
    "HGT": HGT,
    "RGCN": Relational,
    "statistics": Centred,
    "attributes": Attributed,
    "turned": Turned,
}


def made(name: str) -> torch.nn.Module:
    """A model with weights that are all different."""
    torch.manual_seed(3)
    model: torch.nn.Module = MODELS[name]()
    with torch.no_grad():
        for parameter in model.parameters():  # fresh biases are zero and would hide mistakes
            parameter += 0.05 * torch.randn_like(parameter)
    return model
