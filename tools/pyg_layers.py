"""Make docs/reference/pyg-layers.md: each convolution of PyG, and whether a model that contains it can be trained.

`python tools/pyg_layers.py` writes the page. `EXAMPLES` has a constructor for each class, and
`tests/tracing/test_pyg_layers.py` trains each one that works.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lotan.errors import ModelError
from lotan.tracing.pyg.layers import why_refused
from lotan.tracing.trace import trace
from planner.edge_columns import EdgeData

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "pyg-layers.md"
WIDTH = 6
"""The number of features that the constructors are written for."""

EDGES = EdgeData(width=2, typed=True)
"""The attributes and types of edges that the constructors are written for."""

TYPES = 3
"""The number of types of edges that the constructors are written for."""

FOREIGN = ("CuGraphGATConv", "CuGraphRGCNConv", "CuGraphSAGEConv", "FusedGATConv")
"""Copies of other layers that run on a GPU only."""

HEAD = """# Layers of PyG

This page lists the convolutions of PyTorch Geometric {version}, and whether a model that contains them can be trained.
The script `tools/pyg_layers.py` makes it. [Move a model from PyG](../how-to/move-from-pyg.md) shows how to train one.

Each layer that works is trained in the test suite for three epochs, on a graph with weights, self-loops, parallel edges
and isolated vertices. The losses and the weights equal those of PyG. {works} of {all} layers work.

A row shows the example that was tried. In a call, `edge_weight` has the weights of the edges, `edge_attr` two attributes
each, and `edge_type` a type from 0 to 2. All layers that work on `local` work on `blocks` and `rows` too. The nightly
tests train each of them there, for three and for two epochs, and compare it with PyG in the same way.

`MedianAggregation` and `QuantileAggregation` train in each layer that takes an aggregation, over all edges of the graph.
Equal messages share the gradient evenly. `interpolation="nearest"` is refused, because PyG rounds halves by a vertex's
position.

`LSTMAggregation`, `GRUAggregation`, `MLPAggregation`, `SortAggregation` and `SetTransformerAggregation` train over the edges
of the graph as they are. Neighbours are taken in the order of their ids, and parallel edges in that of their weights, then
types and attributes. A graph of PyG has this order after `data.sort(sort_by_row=False)`. `neighbour_order=0` of the Trainer
takes them by the first attribute of the edges, such as a time, the smallest first. As in PyG, zeros follow the
neighbours of a vertex for an LSTM or a GRU, up to the greatest in-degree of the graph, or of a mini-batch. A hub therefore
makes every vertex slow; `lotan.MiniBatch` bounds it. If the neighbours of one vertex take more than 1 GiB side by side, the
run is refused, and the error names the vertex. Dropout inside these aggregations is refused.
"""

ATTRIBUTES = "conv(x, edge_index, edge_attr)"
TYPED = "conv(x, edge_index, edge_type)"
POINTS = "x[:, :3], x[:, 3:]"


@dataclass(frozen=True)
class Example:
    """A way to use a layer.

    Attributes:
        constructor: the expression that makes the layer. The names are those of torch_geometric.nn, and `MLP(a, b)` is
            a perceptron of two layers.
        call: the expression that calls it in a model's forward, or "" if the layer is the model.
        note: what the layer's other options need.
    """

    constructor: str
    call: str = ""
    note: str = ""


EXAMPLES: Mapping[str, Example] = {
    "AGNNConv": Example("AGNNConv()"),
    "APPNP": Example("APPNP(K=3, alpha=0.1)", "conv(linear(x), edge_index, edge_weight)"),
    "ARMAConv": Example("ARMAConv(6, 3, num_stacks=2, num_layers=2)"),
    "AntiSymmetricConv": Example("AntiSymmetricConv(6)"),
    "CGConv": Example("CGConv(6, dim=2, batch_norm=True)", ATTRIBUTES),
    "ChebConv": Example(
        "ChebConv(6, 3, K=3)",
        "conv(x, edge_index, edge_weight, lambda_max=2.0)",
        "without `lambda_max` only where edges have no weights, and with `normalization`",
    ),
    "ClusterGCNConv": Example("ClusterGCNConv(6, 3, diag_lambda=0.3)", note="`add_self_loops=False` is refused"),
    "DNAConv": Example("DNAConv(6, heads=2)", "conv(torch.stack([x, x.relu()], dim=1), edge_index, edge_weight)"),
    "DirGNNConv": Example("DirGNNConv(SAGEConv(6, 3))"),
    "DynamicEdgeConv": Example("DynamicEdgeConv(MLP(12, 3), k=3)", "conv(x)"),
    "EGConv": Example("EGConv(6, 4, aggregators=['sum', 'mean', 'max', 'std', 'symnorm'], num_heads=2, num_bases=2)"),
    "EdgeConv": Example("EdgeConv(MLP(12, 3))"),
    "FAConv": Example("FAConv(6)", "conv(x, x.relu(), edge_index)"),
    "FastRGCNConv": Example("FastRGCNConv(6, 3, num_relations=3)", TYPED),
    "FeaStConv": Example("FeaStConv(6, 3, heads=2)"),
    "FiLMConv": Example("FiLMConv(6, 3, num_relations=3)", TYPED),
    "GATConv": Example("GATConv(6, 3, heads=2, edge_dim=2)", ATTRIBUTES),
    "GATv2Conv": Example("GATv2Conv(6, 3, heads=2, edge_dim=2, fill_value='max')", ATTRIBUTES),
    "GCN2Conv": Example("GCN2Conv(6, alpha=0.1, theta=0.5, layer=1)", "conv(x, x.relu(), edge_index, edge_weight)"),
    "GCNConv": Example("GCNConv(6, 3, cached=True)"),
    "GENConv": Example("GENConv(6, 3, edge_dim=2, learn_t=True)", ATTRIBUTES),
    "GINConv": Example("GINConv(MLP(6, 3), train_eps=True)"),
    "GINEConv": Example("GINEConv(MLP(6, 3), edge_dim=2)", ATTRIBUTES),
    "GMMConv": Example("GMMConv(6, 3, dim=2, kernel_size=2)", ATTRIBUTES),
    "GPSConv": Example(
        "GPSConv(6, SAGEConv(6, 6), norm=None, attn_type='performer', attn_kwargs={'head_channels': 4})",
        note="with `attn_type='performer'`, and all vertices as one group",
    ),
    "GatedGraphConv": Example("GatedGraphConv(6, num_layers=2)"),
    "GeneralConv": Example("GeneralConv(6, 4, in_edge_channels=2, attention=True, heads=2)", ATTRIBUTES),
    "GraphConv": Example("GraphConv(6, 3)"),
    "GravNetConv": Example("GravNetConv(6, 3, space_dimensions=2, propagate_dimensions=2, k=3)", "conv(x)"),
    "HANConv": Example(
        "HANConv(6, 4, (['a'], [('a', 'to', 'a'), ('a', 'by', 'a')]), heads=2)",
        "conv({'a': x}, {('a', 'to', 'a'): edge_index, ('a', 'by', 'a'): edge_index[:, edge_type == 1]})['a']",
        "several types: see HeteroGraph",
    ),
    "HEATConv": Example(
        "HEATConv(6, 3, 2, 3, 2, 2, 2)", "conv(x, edge_index, (x[:, 0] > 0).long(), edge_type, edge_attr)"
    ),
    "HGTConv": Example(
        "HGTConv(6, 6, (['a'], [('a', 'to', 'a'), ('a', 'by', 'a')]), heads=2)",
        "conv({'a': x}, {('a', 'to', 'a'): edge_index, ('a', 'by', 'a'): edge_index[:, edge_type == 1]})['a']",
        "several types: see HeteroGraph",
    ),
    "HeteroConv": Example(
        "HeteroConv({('a', 'to', 'a'): SAGEConv(6, 3), ('a', 'by', 'a'): GraphConv(6, 3)}, aggr='mean')",
        "conv({'a': x}, {('a', 'to', 'a'): edge_index, ('a', 'by', 'a'): edge_index})['a']",
        "several types: see HeteroGraph",
    ),
    "HypergraphConv": Example(
        "HypergraphConv(6, 3)",
        "conv(x, edge_index)",
        "as many hyperedges as vertices",
    ),
    "LEConv": Example("LEConv(6, 3)"),
    "LGConv": Example("LGConv()", "conv(linear(x), edge_index, edge_weight)"),
    "MFConv": Example("MFConv(6, 3, max_degree=4)"),
    "MeshCNNConv": Example("MeshCNNConv(6, 3)"),
    "MixHopConv": Example("MixHopConv(6, 3, powers=[0, 1, 2])"),
    "NNConv": Example("NNConv(6, 3, MLP(2, 18), aggr='mean')", ATTRIBUTES),
    "PANConv": Example("PANConv(6, 3, filter_size=2)"),
    "PDNConv": Example("PDNConv(6, 3, edge_dim=2, hidden_channels=4)", ATTRIBUTES),
    "PNAConv": Example(
        "PNAConv(6, 4, ['mean', 'min', 'max', 'std'], ['identity', 'amplification', 'attenuation'], "
        "torch.tensor([1, 2, 3, 2]), towers=2, edge_dim=2)",
        ATTRIBUTES,
    ),
    "PPFConv": Example("PPFConv(MLP(7, 4), MLP(4, 3))", f"conv({POINTS}, x[:, 1:4], edge_index)"),
    "PointGNNConv": Example("PointGNNConv(MLP(3, 3), MLP(6, 4), MLP(4, 3))", f"conv({POINTS}, edge_index)"),
    "PointNetConv": Example("PointNetConv(MLP(6, 4), MLP(4, 3))", f"conv({POINTS}, edge_index)"),
    "PointTransformerConv": Example("PointTransformerConv(3, 3)", f"conv({POINTS}, edge_index)"),
    "RGATConv": Example("RGATConv(6, 3, num_relations=3, edge_dim=2)", "conv(x, edge_index, edge_type, edge_attr)"),
    "RGCNConv": Example("RGCNConv(6, 3, num_relations=3, num_bases=2)", TYPED),
    "ResGatedGraphConv": Example("ResGatedGraphConv(6, 3, edge_dim=2)", ATTRIBUTES),
    "SAGEConv": Example(
        "SAGEConv(6, 3, aggr=['mean', 'max', 'softmax'])",
        note="`aggr='lstm'` takes neighbours in the order of their ids, or of `neighbour_order`",
    ),
    "SGConv": Example("SGConv(6, 3, K=2, cached=True)"),
    "SSGConv": Example("SSGConv(6, 3, alpha=0.1, K=2)"),
    "SignedConv": Example(
        "SignedConv(6, 3, first_aggr=True)", "conv(x, edge_index[:, edge_weight > 1], edge_index[:, edge_weight <= 1])"
    ),
    "SimpleConv": Example("SimpleConv('mean', combine_root='sum')", "conv(linear(x), edge_index, edge_weight)"),
    "SplineConv": Example("SplineConv(6, 3, dim=2, kernel_size=3)", ATTRIBUTES),
    "SuperGATConv": Example("SuperGATConv(6, 3, heads=2, attention_type='SD')", note="without the loss of its own"),
    "TAGConv": Example("TAGConv(6, 3, K=2)"),
    "TransformerConv": Example("TransformerConv(6, 3, heads=2, beta=True, edge_dim=2)", ATTRIBUTES),
    "WLConv": Example("WLConv()", "conv(x.long(), edge_index)"),
    "WLConvContinuous": Example("WLConvContinuous()", "conv(linear(x), edge_index, edge_weight)"),
    "XConv": Example("XConv(6, 3, dim=3, kernel_size=4)", "conv(x, x[:, :3])"),
}
"""An example of each convolution, by the name of its class."""


class Called(torch.nn.Module):
    """A model that calls a layer as an example says.

    Args:
        conv: the layer.
        call: the expression.
    """

    def __init__(self, conv: torch.nn.Module, call: str) -> None:
        super().__init__()
        self.conv = conv
        self.linear = torch.nn.Linear(WIDTH, 3) if "linear" in call else None
        self._code = compile(call, "the call of the example", "eval")

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Tensor, edge_type: Tensor) -> Any:
        """Call the layer."""
        names = {"conv": self.conv, "linear": self.linear, "torch": torch, "x": x, "edge_index": edge_index}
        return eval(self._code, {**names, "edge_weight": edge_weight, "edge_attr": edge_attr, "edge_type": edge_type})


def make(example: Example) -> torch.nn.Module:
    """Return a model of one layer. torch's generator draws its weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch_geometric.nn

    names = {**vars(torch_geometric.nn), "torch": torch, "MLP": _perceptron}
    conv: torch.nn.Module = eval(example.constructor, names)
    return Called(conv, example.call) if example.call else conv


def _perceptron(inputs: int, outputs: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(inputs, 8), torch.nn.ReLU(), torch.nn.Linear(8, outputs))


def reason_against(name: str) -> str | None:
    """Return the reason why a layer cannot be traced, or None if it can."""
    try:
        model = make(EXAMPLES[name])
    except ImportError as error:
        kind = type(name, (torch.nn.Module,), {"__module__": "torch_geometric.nn.conv"})
        return why_refused(kind()) or str(error)
    try:
        trace(model, WIDTH, training=True, data=EDGES, weighted=True)
    except ModelError as error:
        return str(error).partition(": ")[2]
    return None


def page() -> str:
    """Return the whole page."""
    import torch_geometric

    reasons = {name: reason_against(name) for name in sorted(EXAMPLES, key=str.lower)}
    counts = {"works": sum(reason is None for reason in reasons.values()), "all": len(reasons)}
    version = ".".join(torch_geometric.__version__.split(".")[:2])
    lines = [HEAD.format(version=version, **counts)]
    lines += ["## Layers that work", "", "| example | called as | limits |", "|---|---|---|"]
    for name, reason in reasons.items():
        if reason is None:
            example = EXAMPLES[name]
            lines.append(f"| `{example.constructor}` | `{example.call or 'model(x, edge_index)'}` | {example.note} |")
    lines += ["", "## Layers that are refused", "", "| layer | reason |", "|---|---|"]
    lines += [f"| `{name}` | {reason} |" for name, reason in reasons.items() if reason is not None]
    return "\n".join([*lines, ""])


def main() -> int:
    """Write the page."""
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
