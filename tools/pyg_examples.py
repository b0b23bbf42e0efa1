"""Make docs/reference/pyg-examples.md: the models of the node-level examples of PyG and OGB, and which of them train.

`python tools/pyg_examples.py` tries each model, with three epochs beside PyG, and writes the page. It takes a few minutes.
`EXAMPLES` says of which layers a model is built, with small widths, and how its forward calls them.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import lotan  # noqa: E402
from lotan.errors import LotanError  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "pyg-examples.md"
WIDTH, CLASSES, RELATIONS, ATTRIBUTES = 6, 3, 3, 2
"""The numbers of features, classes, types of edges and attributes of edges that the models are written for."""

METADATA = (
    ("author", "conference", "paper", "term"),
    tuple(
        (source, "to", destination)
        for one, other in (("author", "paper"), ("paper", "term"), ("paper", "conference"))
        for source, destination in ((one, other), (other, one))
    ),
)
COUNTS = {"author": 30, "conference": 5, "paper": 40, "term": 12}
WIDTHS = {"author": WIDTH, "conference": 1, "paper": 4, "term": 3}
"""The types of vertices and relations of the examples with several: those of PyG's data set DBLP. Authors have labels."""

EPOCHS = 3
LOSS, WEIGHTS = 2e-5, 5e-4
"""The largest differences of losses and weights from those of PyG. That of a loss above 1 is relative."""

ORDER = ("x", "edge_index", "adj_t", "edge_weight", "edge_attr", "edge_type", "label_mask")
BY_TYPE = ("x_dict", "edge_index_dict")
"""The arguments that a forward may have, in order. It has those that its expression names, and `y` beside `label_mask`."""

HEAD = """# Examples of PyG and OGB

This page lists the models of the node-level examples of PyTorch Geometric and the Open Graph Benchmark that are trained
on whole graphs, and whether they train. The script `tools/pyg_examples.py` makes it: {works} of {all} do.

A model that trains was compared with plain PyG on a messy graph on `local`: losses and weights of three epochs are equal.
It was compared without dropout, because both draw other random numbers, and then trained with it. A model that takes
labels as input was compared without seeing any, and then trained with them. One for several types of vertices was compared
on a messy graph with the types of DBLP. An example's data, loops and attacks are not tried, only its model.
"""


@dataclass(frozen=True)
class Example:
    """The model of an example.

    Attributes:
        parts: the expression that makes each part, by name. The names are those of torch_geometric.nn and torch.nn.
        forward: the expression that forward returns. `drop(x)` is a dropout in training.
        source: where the example comes from, "PyG" or "OGB".
        lacks: what of the example cannot be written here, in words; "" if the model is written as it is.
    """

    parts: Mapping[str, str]
    forward: str
    source: str = "PyG"
    lacks: str = ""

    @property
    def by_type(self) -> bool:
        """True if forward takes a tensor for each type of vertices."""
        return BY_TYPE[0] in self.forward


def stack(
    layer: str, widths: tuple[int, ...], act: str = "relu", end: str = "", first: str = "edge_index", norm: str = ""
) -> tuple[dict[str, str], str]:
    """Return the parts and the forward of layers one behind another, with an activation and a dropout between.

    Args:
        layer: the constructor of a layer, with {0} and {1} for its widths.
        widths: the widths.
        act: the method that activates.
        end: what is called on the result, such as ".log_softmax(-1)".
        first: the arguments of a layer behind x.
        norm: the constructor of a norm behind each layer but the last, with {0} for its width.
    """
    parts, forward = {}, "x"
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        parts[f"conv{number}"] = layer.format(inputs, outputs)
        forward = f"conv{number}({forward}, {first})"
        if number + 2 < len(widths):
            if norm:
                parts[f"norm{number}"] = norm.format(outputs)
                forward = f"norm{number}({forward})"
            forward = f"drop({forward}.{act}())"
    return parts, forward + end


def of(layer: str, *, source: str = "PyG", widths: tuple[int, ...] = (WIDTH, 8, CLASSES), **settings: str) -> Example:
    """Return the example of equal layers one behind another."""
    return Example(*stack(layer, widths, **settings), source)


GCN = of("GCNConv({0}, {1}, cached=True)")
GAT = Example(
    {
        "conv1": "GATConv(6, 8, heads=2, dropout=0.6)",
        "conv2": "GATConv(16, 3, heads=1, concat=False, dropout=0.6)",
    },
    "conv2(drop(F.elu(conv1(drop(x), edge_index))), edge_index)",
)
DEEP = (WIDTH, 8, 8, CLASSES)
OGB_MLP = Example(
    {"lin1": "Linear(6, 8)", "norm": "torch.nn.BatchNorm1d(8)", "lin2": "Linear(8, 3)"},
    "torch.log_softmax(lin2(drop(norm(lin1(x)).relu())), -1)",
    "OGB",
)
"""The MLP that OGB has for several data sets."""

EXAMPLES: Mapping[str, Example] = {
    "agnn": Example(
        {
            "lin1": "Linear(6, 8)",
            "prop1": "AGNNConv(requires_grad=False)",
            "prop2": "AGNNConv()",
            "lin2": "Linear(8, 3)",
        },
        "F.log_softmax(lin2(drop(prop2(prop1(lin1(drop(x)).relu(), edge_index), edge_index))), -1)",
    ),
    "argva_node_clustering": Example(
        {"conv": "GCNConv(6, 3)"}, "conv(x, edge_index)", lacks="an adversarial loss over links"
    ),
    "arma": Example(
        {
            "conv1": "ARMAConv(6, 8, num_stacks=3, num_layers=2, shared_weights=True, dropout=0.25)",
            "conv2": "ARMAConv(8, 3, num_stacks=3, num_layers=2, shared_weights=True, dropout=0.25, act=lambda x: x)",
        },
        "F.log_softmax(conv2(drop(conv1(drop(x), edge_index).relu()), edge_index), -1)",
    ),
    "cluster_gcn_ppi": of("SAGEConv({0}, {1})", widths=DEEP, norm="BatchNorm({0})"),
    "cluster_gcn_reddit": of("SAGEConv({0}, {1})", end=".log_softmax(-1)"),
    "compile/gcn": Example({"model": "torch.compile(GCN(6, 8, 2, 3))"}, "model(x, edge_index)"),
    "contrib/pgm_explainer_node_classification": of("GCNConv({0}, {1})", end=".log_softmax(-1)"),
    "contrib/rbcd_attack (GCN)": Example(
        {"conv1": "GCNConv(6, 8, normalize=False)", "conv2": "GCNConv(8, 3, normalize=False)"},
        "(lambda e, w: conv2(drop(conv1(x, e, w).relu()), e, w))(*gcn_norm(edge_index, edge_weight, x.size(0)))",
    ),
    "contrib/rbcd_attack (GAT)": Example(
        {"conv1": "WeightedGAT(6, 8, fill_value=1.0)", "conv2": "WeightedGAT(8, 3, fill_value=1.0)"},
        "conv2(drop(conv1(x, edge_index, edge_weight).relu()), edge_index, edge_weight)",
    ),
    "contrib/rbcd_attack_poisoning": of("GCNConv({0}, {1})"),
    "cora": Example(
        {"conv1": "SplineConv(6, 8, dim=2, kernel_size=2)", "conv2": "SplineConv(8, 3, dim=2, kernel_size=2)"},
        "F.log_softmax(conv2(drop(F.elu(conv1(x, edge_index, edge_attr))), edge_index, edge_attr), -1)",
    ),
    "correct_and_smooth": Example(
        {"mlp": "MLP([6, 8, 8, 3], dropout=0.5, norm='batch_norm', act_first=True)"}, "mlp(x)"
    ),
    "dir_gnn": Example(
        {
            "conv1": "DirGNNConv(SAGEConv(6, 8), 0.5, root_weight=False)",
            "conv2": "DirGNNConv(SAGEConv(8, 3), 0.5, root_weight=False)",
        },
        "conv2(conv1(x, edge_index).relu(), edge_index)",
    ),
    "dna": Example(
        {
            "lin1": "Linear(6, 8)",
            "conv1": "DNAConv(8, 2, 2, dropout=0.8)",
            "conv2": "DNAConv(8, 2, 2, dropout=0.8)",
            "lin2": "Linear(8, 3)",
        },
        "(lambda h: (lambda h: F.log_softmax(lin2(drop(conv2(h, edge_index).relu())), -1))"
        "(torch.cat([h, conv1(h, edge_index).relu().view(-1, 1, 8)], 1)))(drop(lin1(x).relu()).view(-1, 1, 8))",
    ),
    "explain/captum_explainer": of("GCNConv({0}, {1})", end=".log_softmax(-1)"),
    "explain/gnn_explainer": of("GCNConv({0}, {1})", end=".log_softmax(-1)"),
    "explain/gnn_explainer_ba_shapes": Example({"model": "GCN(6, 8, 3, 3)"}, "model(x, edge_index)"),
    "explain/graphmask_explainer": of("GCNConv({0}, {1})", end=".log_softmax(-1)"),
    "film": Example(
        {"conv1": "FiLMConv(6, 8)", "norm": "torch.nn.BatchNorm1d(8)", "conv2": "FiLMConv(8, 3, act=None)"},
        "conv2(drop(norm(conv1(x, edge_index))), edge_index)",
    ),
    "gat": GAT,
    "gcn": GCN,
    "gcn2_cora": Example(
        {
            "lin1": "Linear(6, 8)",
            "conv1": "GCN2Conv(8, 0.1, 0.5, 1, True, normalize=False)",
            "conv2": "GCN2Conv(8, 0.1, 0.5, 2, True, normalize=False)",
            "lin2": "Linear(8, 3)",
        },
        "(lambda h: lin2(drop(conv2(drop(conv1(drop(h), h, adj_t).relu()), h, adj_t).relu())).log_softmax(-1))"
        "(lin1(drop(x)).relu())",
    ),
    "gcn2_ppi": Example(
        {"lin1": "Linear(6, 8)", "conv1": "GCN2Conv(8, 0.1, 0.5, 1, False, normalize=False)", "lin2": "Linear(8, 3)"},
        "(lambda h: lin2(drop((conv1(drop(h), h, adj_t) + h).relu())))(lin1(drop(x)).relu())",
    ),
    "geniepath": Example(
        {
            "lin1": "Linear(6, 8)",
            "conv1": "GATConv(8, 8, heads=1)",
            "lstm1": "torch.nn.LSTM(8, 8, 1, bias=False)",
            "conv2": "GATConv(8, 8, heads=1)",
            "lstm2": "torch.nn.LSTM(8, 8, 1, bias=False)",
            "lin2": "Linear(8, 3)",
        },
        "lin2((lambda out, state: lstm2(torch.tanh(conv2(out[0], edge_index))[None], state)[0][0])"
        "(*lstm1(torch.tanh(conv1(lin1(x), edge_index))[None], (torch.zeros(1, x.shape[0], 8),) * 2)))",
    ),
    "glnn": Example(
        {"mlp": "MLP([6, 8, 3], dropout=0.5, norm=None)"}, "mlp(x)", lacks="a loss against a teacher's outputs"
    ),
    "graph_unet": Example(
        {"unet": "GraphUNet(6, 8, 3, depth=2, pool_ratios=0.5)"}, "F.log_softmax(unet(x, edge_index), 1)"
    ),
    "graphland": Example(
        {"conv": "GCNConv(6, 8)", "head": "torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(8, 3))"},
        "head(conv(x, edge_index))",
    ),
    "hetero/dmgi_unsup": Example(
        {"conv": "GCNConv(6, 3)"},
        "conv(x, edge_index)",
        lacks="a loss that compares the rows of the graph with those of a corrupted one",
    ),
    "hetero/han_imdb": Example(
        {"han_conv": "HANConv(-1, 8, heads=2, dropout=0.6, metadata=METADATA)", "lin": "Linear(8, 3)"},
        "lin(han_conv(x_dict, edge_index_dict)['author'])",
    ),
    "hetero/hetero_conv_dblp": Example(
        {
            "conv1": "HeteroConv({r: SAGEConv((-1, -1), 8) for r in METADATA[1]})",
            "conv2": "HeteroConv({r: SAGEConv((-1, -1), 8) for r in METADATA[1]})",
            "lin": "Linear(8, 3)",
        },
        "lin(leaky(conv2(leaky(conv1(x_dict, edge_index_dict)), edge_index_dict))['author'])",
    ),
    "hetero/hgt_dblp": Example(
        {
            "lin_dict": "torch.nn.ModuleDict({t: Linear(-1, 8) for t in METADATA[0]})",
            "conv": "HGTConv(8, 8, METADATA, 2)",
            "lin": "Linear(8, 3)",
        },
        "lin(conv({t: lin_dict[t](x).relu_() for t, x in x_dict.items()}, edge_index_dict)['author'])",
    ),
    "infomax_transductive": Example(
        {"conv": "GCNConv(6, 3)", "act": "torch.nn.PReLU(3)"},
        "act(conv(x, edge_index))",
        lacks="a loss between vertices and a permutation of them",
    ),
    "jit/gat": Example({**GAT.parts}, f"F.log_softmax({GAT.forward}, -1)"),
    "jit/gcn": Example({**GCN.parts}, f"F.log_softmax({GCN.forward}, -1)"),
    "label_prop": Example({"model": "lotan.LabelPropagation(3, 0.9)"}, ""),
    "linkx": Example({"model": "LINKX(40, 6, 8, 3, num_layers=1)"}, "model(x, edge_index)"),
    "mixhop": Example(
        {
            "conv1": "MixHopConv(6, 4, powers=[0, 1, 2])",
            "norm1": "BatchNorm(12)",
            "conv2": "MixHopConv(12, 4, powers=[0, 1, 2])",
            "norm2": "BatchNorm(12)",
            "lin": "Linear(12, 3)",
        },
        "lin(drop(norm2(conv2(drop(norm1(conv1(drop(x), edge_index))), edge_index))))",
    ),
    "multi_gpu/model_parallel": Example(
        {"conv1": "GCNConv(6, 8)", "conv2": "GCNConv(8, 3)"},
        "conv2(drop(conv1(drop(x), edge_index).relu().to('cpu')), edge_index.to('cpu'))",
    ),
    "ogc": Example({"lin": "Linear(6, 3)"}, "lin(x)", lacks="features that its loop changes from epoch to epoch"),
    "pmlp": Example(
        {"model": "PMLP(6, 8, 3, num_layers=2, dropout=0.5, norm=False)"},
        "model(x, edge_index if not training else None)",
    ),
    "ppi": Example(
        {
            "conv1": "GATConv(6, 4, heads=2, residual=True)",
            "conv2": "GATConv(8, 3, heads=2, concat=False, residual=True)",
        },
        "conv2(F.elu(conv1(x, edge_index)), edge_index)",
    ),
    "rect": Example({"model": "RECT_L(6, 8, normalize=False)"}, "model(x, edge_index, edge_weight)"),
    "rgat": Example(
        {"conv1": "RGATConv(6, 8, 3)", "conv2": "RGATConv(8, 8, 3)", "lin": "Linear(8, 3)"},
        "F.log_softmax(lin(conv2(conv1(x, edge_index, edge_type).relu(), edge_index, edge_type).relu()), -1)",
    ),
    "rgcn": Example(
        {"conv1": "RGCNConv(40, 8, 3, num_bases=3)", "conv2": "RGCNConv(8, 3, 3, num_bases=3)"},
        "F.log_softmax(conv2(conv1(None, edge_index, edge_type).relu(), edge_index, edge_type), 1)",
    ),
    "sgc": Example({"conv": "SGConv(6, 3, K=2, cached=True)"}, "F.log_softmax(conv(x, edge_index), -1)"),
    "sign": Example(
        {"lin1": "Linear(2, 8)", "lin2": "Linear(2, 8)", "lin3": "Linear(2, 8)", "lin": "Linear(24, 3)"},
        "lin(torch.cat([drop(lin1(x[:, :2]).relu()), drop(lin2(x[:, 2:4]).relu()), drop(lin3(x[:, 4:]).relu())], -1))"
        ".log_softmax(-1)",
    ),
    "super_gat": Example(
        {
            "conv1": "SuperGATConv(6, 4, heads=2, attention_type='MX', is_undirected=True)",
            "conv2": "SuperGATConv(8, 3, heads=2, concat=False, attention_type='MX', is_undirected=True)",
        },
        "conv2(F.elu(conv1(x, edge_index)), edge_index)",
        lacks="the layers' own loss over links",
    ),
    "tagcn": of("TAGConv({0}, {1})", end=".log_softmax(-1)"),
    "tensorboard_logging": of("GCNConv({0}, {1}, cached=True)", end=".log_softmax(-1)"),
    "unimp_arxiv": Example(
        {
            "label_emb": "MaskLabel(3, 6)",
            "conv1": "TransformerConv(6, 4, 2, beta=True)",
            "norm": "torch.nn.LayerNorm(8)",
            "conv2": "TransformerConv(8, 3, 2, concat=False, beta=True)",
        },
        "conv2(norm(conv1(label_emb(x, y, label_mask), edge_index)).relu(), edge_index)",
    ),
    "nodeproppred/arxiv (GCN)": of(
        "GCNConv({0}, {1}, cached=True)",
        widths=DEEP,
        norm="torch.nn.BatchNorm1d({0})",
        first="adj_t",
        end=".log_softmax(-1)",
        source="OGB",
    ),
    "nodeproppred/arxiv (SAGE)": of(
        "SAGEConv({0}, {1})",
        widths=DEEP,
        norm="torch.nn.BatchNorm1d({0})",
        first="adj_t",
        end=".log_softmax(-1)",
        source="OGB",
    ),
    "nodeproppred/arxiv (MLP)": OGB_MLP,
    "nodeproppred/products (GCN)": of(
        "GCNConv({0}, {1}, normalize=False)", widths=DEEP, first="adj_t", end=".log_softmax(-1)", source="OGB"
    ),
    "nodeproppred/products (SAGE)": of(
        "SAGEConv({0}, {1})", widths=DEEP, first="adj_t", end=".log_softmax(-1)", source="OGB"
    ),
    "nodeproppred/products (MLP)": OGB_MLP,
    "nodeproppred/products (SIGN)": Example(
        {"lin1": "Linear(3, 8)", "lin2": "Linear(3, 8)", "lin": "Linear(16, 3)", "act": "torch.nn.PReLU()"},
        "torch.log_softmax(lin(drop(act(torch.cat([drop(lin1(x[:, :3])), drop(lin2(x[:, 3:]))], -1)))), -1)",
        "OGB",
    ),
    "nodeproppred/mag (GCN)": of(
        "GCNConv({0}, {1}, cached=True)", widths=DEEP, first="adj_t", end=".log_softmax(-1)", source="OGB"
    ),
    "nodeproppred/mag (SAGE)": of(
        "SAGEConv({0}, {1})", widths=DEEP, first="adj_t", end=".log_softmax(-1)", source="OGB"
    ),
    "nodeproppred/mag (MLP)": OGB_MLP,
    "nodeproppred/mag (RGCN)": Example(
        {
            "emb_dict": "torch.nn.ParameterDict({t: torch.nn.Parameter(torch.randn(COUNTS[t], 6)) for t in METADATA[0][1:]})",
            "conv1": "ByRelation(6, 8)",
            "conv2": "ByRelation(8, 3)",
        },
        "conv2({t: drop(h.relu()) for t, h in conv1({'author': x_dict['author'], **emb_dict}, edge_index_dict).items()},"
        " edge_index_dict)['author'].log_softmax(-1)",
        "OGB",
    ),
    "nodeproppred/proteins (GCN)": of("GCNConv({0}, {1}, normalize=False)", widths=DEEP, first="adj_t", source="OGB"),
    "nodeproppred/proteins (SAGE)": of("SAGEConv({0}, {1})", widths=DEEP, first="adj_t", source="OGB"),
    "nodeproppred/proteins (MLP)": Example(
        {"lin1": "Linear(6, 8)", "lin2": "Linear(8, 3)"},
        "lin2(drop(lin1(x).relu()))",
        "OGB",
    ),
    "nodeproppred/papers100M (MLP, SGC)": OGB_MLP,
}
"""The model of each example, by the name of its file, which is in the folder `examples` of its source."""


class Model(torch.nn.Module):
    """A model that is built of parts, and whose forward is an expression.

    Args:
        example: the example.
        dropping: if False, no dropout drops.
    """

    def __init__(self, example: Example, dropping: bool) -> None:
        super().__init__()
        names = _names()
        for name, constructor in example.parts.items():
            part = eval(constructor, names)
            self.add_module(name, part)
        if not dropping:
            for module in self.modules():
                rate = vars(module).get("dropout")
                if isinstance(rate, float | list):
                    module.dropout = 0.0 if isinstance(rate, float) else [0.0] * len(rate)
                elif isinstance(module, torch.nn.Dropout):
                    module.p = 0.0
        self._probability = 0.5 if dropping else 0.0

    def drop(self, x: Tensor) -> Tensor:
        """Return x with dropout in training."""
        return F.dropout(x, p=self._probability, training=self.training)


def _names() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch_geometric.nn as pyg
        from torch_geometric.nn.conv.gcn_conv import gcn_norm
        from torch_geometric.utils import scatter, softmax

    class ByRelation(torch.nn.Module):
        """The layer of OGB's RGCN: a linear map of the mean for each relation, and one for each type of vertices."""

        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.rel_lins = torch.nn.ModuleList(torch.nn.Linear(inputs, outputs, bias=False) for _ in METADATA[1])
            self.root_lins = torch.nn.ModuleDict({name: torch.nn.Linear(inputs, outputs) for name in METADATA[0]})

        def forward(self, x_dict: Mapping[str, Tensor], edge_index_dict: Mapping[Any, Tensor]) -> dict[str, Tensor]:
            found = {name: self.root_lins[name](x) for name, x in x_dict.items()}
            for relation, lin in zip(METADATA[1], self.rel_lins, strict=True):
                (source, _, end), (row, col) = relation, edge_index_dict[relation]
                mean = scatter(x_dict[source][row], col, dim_size=found[end].size(0), reduce="mean")
                found[end] = found[end] + lin(mean)
            return found

    class WeightedGAT(pyg.GATConv):
        """An attention whose scores are shifted by the logarithm of the edge's weight."""

        def edge_update(self, alpha_j, alpha_i, edge_attr, index, ptr, size_i):  # type: ignore[no-untyped-def]
            alpha = F.leaky_relu(alpha_j + alpha_i, self.negative_slope)
            if edge_attr is not None:
                assert edge_attr.dim() == 1
                alpha = alpha + torch.log2(edge_attr.view(-1, 1))
            return softmax(alpha, index, ptr, size_i)

    def leaky(x_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: F.leaky_relu(x) for name, x in x_dict.items()}

    own = {"WeightedGAT": WeightedGAT, "ByRelation": ByRelation, "leaky": leaky, "METADATA": METADATA, "COUNTS": COUNTS}
    return {**vars(pyg), "torch": torch, "F": F, "gcn_norm": gcn_norm, **own}


def make(example: Example, dropping: bool = False) -> torch.nn.Module:
    """Return the model of an example. torch's generator draws its weights."""
    arguments = [name for name in ORDER if name in example.forward] or ["x"]
    arguments = [*BY_TYPE] if example.by_type else arguments
    arguments += ["y"] * ("label_mask" in arguments)
    arguments += ["edge_index"] * (arguments == ["x"])  # which every model of PyG may take
    body = f"def forward(self, {', '.join(arguments)}):\n    training, drop = self.training, self.drop\n"
    body += "".join(f"    {name} = self.{name}\n" for name in example.parts)
    scope: dict[str, Any] = _names()
    exec(f"{body}    return {example.forward}\n", scope)
    model: torch.nn.Module = type("Model", (Model,), {"forward": scope["forward"]})(example, dropping)
    if example.by_type:  # lazy layers find their widths
        data = typed_graph().to_pyg()  # in another order of relations, which changes no width
        with torch.no_grad():
            model.eval()(data.x_dict, data.edge_index_dict)
        model.train()
    return model


def typed_graph(seed: int = 0, edges: int = 60) -> lotan.HeteroGraph:
    """Return a graph with the types of `METADATA`, with parallel edges, a hub and vertices without edges."""
    random = np.random.default_rng(seed)
    vertices: dict[str, Any] = {}
    for name, count in COUNTS.items():
        features = random.standard_normal((count, WIDTHS[name])).astype(np.float32)
        vertices[name] = {"id": np.arange(count), "features": list(features)}
    count = COUNTS["author"]
    vertices["author"] |= {"label": random.integers(0, CLASSES, count), "train_mask": random.random(count) < 0.6}
    given = {}
    for relation in METADATA[1]:
        src, dst = (random.integers(0, COUNTS[end] - 2, edges) for end in (relation[0], relation[2]))
        dst[:10] = 0
        given[relation] = {"src": src, "dst": dst}
    return lotan.HeteroGraph(vertices, given)


def messy_graph(seed: int = 0, vertices: int = 40, edges: int = 160) -> lotan.Graph:
    """Return a graph with weights, attributes, types, self-loops, parallel edges and vertices without edges."""
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, vertices - 3, (2, edges))
    dst[:20] = 0
    src[-4:], dst[-4:] = (1, 2, 3, 3), (1, 2, 4, 4)
    return lotan.Graph.from_arrays(
        random.standard_normal((vertices, WIDTH)).astype(np.float32),
        src,
        dst,
        label=random.integers(0, CLASSES, vertices),
        split=random.choice([0, 0, -1], vertices).astype(np.int8),
        weight=random.uniform(0.5, 1.5, edges).astype(np.float32),
        edge_attr=random.random((edges, ATTRIBUTES)).astype(np.float32),
        edge_type=random.integers(0, RELATIONS, edges),
    )


def reason_against(name: str) -> str | None:
    """Return the reason why the model of an example does not train, or None if it trains as with PyG."""
    example = EXAMPLES[name]
    graph = typed_graph() if example.by_type else messy_graph()
    if example.lacks:
        return f"needs {example.lacks}"
    if name == "label_prop":
        return _spread_otherwise(graph)
    torch.manual_seed(3)
    try:
        ours = make(example)
    except ImportError as error:
        return str(error).splitlines()[0]
    theirs = copy.deepcopy(ours)
    # SGD, because Adam makes steps of the rounding errors of a gradient whose true value is 0
    settings = {"optimizer": lotan.SGD(lr=0.1), "engine": "local", "progress": False}
    try:
        run = lotan.Trainer(ours, graph, epochs=EPOCHS, label_rate=0.0, **settings).fit()
        lotan.Trainer(make(example, dropping=True), graph, epochs=1, **settings).fit()
    except LotanError as error:
        return str(error).split(": ", 1)[-1]
    return _difference(run, ours, theirs, graph)


def _difference(run: Any, ours: torch.nn.Module, theirs: torch.nn.Module, graph: lotan.Graph) -> str | None:
    """Return in what the training differs from that of plain PyG, or None."""
    import inspect

    data = graph.to_pyg()
    names = list(inspect.signature(theirs.forward).parameters)
    if isinstance(graph, lotan.HeteroGraph):
        given = {name: getattr(data, name) for name in names}
        given["edge_index_dict"] = {relation: given["edge_index_dict"][relation] for relation in METADATA[1]}
        data = data["author"]
    else:
        data.adj_t, data.label_mask = data.edge_index, torch.zeros_like(data.train_mask)
        given = {name: data[name] for name in names}
    steps = torch.optim.SGD([one for one in theirs.parameters() if one.requires_grad], lr=0.1)
    for epoch in run.history:
        theirs.train()
        loss = F.cross_entropy(theirs(**given)[data.train_mask], data.y[data.train_mask])
        if abs(loss.item() - epoch["loss"]) > LOSS * max(1.0, loss.item()):
            return f"a loss of {epoch['loss']:.6f} in epoch {epoch['epoch']}, and PyG has {loss.item():.6f}"
        steps.zero_grad()
        loss.backward()
        steps.step()
    found = ours.state_dict()
    for name, value in theirs.state_dict().items():
        if not torch.allclose(found[name], value, rtol=0, atol=WEIGHTS, equal_nan=True):  # PyG leaves some unset
            return f"other weights {name} than PyG"
    return None


def _spread_otherwise(graph: lotan.Graph) -> str | None:
    """Return in what Lotan's label propagation, which trains nothing, differs from that of PyG, or None."""
    from torch_geometric.nn import LabelPropagation
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    data = graph.to_pyg()
    index, weight = gcn_norm(data.edge_index, data.edge_weight, data.num_nodes, add_self_loops=False)
    expected = LabelPropagation(3, 0.9)(F.one_hot(data.y, CLASSES).float(), index, data.train_mask, weight)
    found = lotan.LabelPropagation(3, 0.9).predict(graph, engine="local")
    return None if np.allclose(np.stack(found["score"]), expected, atol=1e-5) else "other scores than PyG"


def page() -> str:
    """Return the whole page."""
    reasons = {name: reason_against(name) for name in EXAMPLES}
    works = sum(reason is None for reason in reasons.values())
    lines = [HEAD.format(works=works, all=len(reasons))]
    lines += ["## Models that train", "", "| example | source | built of |", "|---|---|---|"]
    for name, reason in reasons.items():
        if reason is None:
            example = EXAMPLES[name]
            parts = ", ".join(f"`{part}`" for part in example.parts.values())
            lines.append(f"| {name} | {example.source} | {parts} |")
    lines += ["", "## Models that do not", "", "| example | source | reason |", "|---|---|---|"]
    lines += [
        f"| {name} | {EXAMPLES[name].source} | {reason} |" for name, reason in reasons.items() if reason is not None
    ]
    return "\n".join([*lines, ""])


def main() -> int:
    """Write the page."""
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
