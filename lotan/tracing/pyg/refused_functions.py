"""The functions of PyG that nothing can follow along the edges of a trace, and what to write instead of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from torch import Tensor

from lotan.tracing.pyg.edge_tensors import EdgeTensors

_UTILS = "torch_geometric.utils"
_SORTS = (
    "sorts or merges edges, which lie in an order of their own; leave it out, or merge them before the graph is made"
)
_ASKS = "asks for a fact of the whole graph, which is no tensor of rows; compute it before training, and keep it in the module"
_PARTS = (
    "takes the part of a graph that some vertices have; choose edges by a mask of booleans, edge_index[:, mask], such as "
    "keep[edge_index[0]] & keep[edge_index[1]]"
)
_MATRIX = "makes a matrix of the edges; aggregate with a layer of PyG, or with torch_geometric.utils.scatter"
_ADDS = "adds edges; give them to the graph where it is made"
_PAIRS = (
    "draws pairs of vertices that have no edge; train with task=lotan.LinkPrediction(negatives=...), which draws them"
)
_CHOOSES = (
    "takes values of self-loops by their vertices; sum them by scatter, with the mask edge_index[0] == edge_index[1]"
)
_RANKS = "computes walks on the whole graph; use APPNP, or compute it before training as weights"
_WALKS = "draws walks along the edges; drop single edges by dropout_edge"
_MASKS = (
    "with mode='col', its default, draws one number for each column, which all vertices share; random numbers belong to rows: "
    "use mode='row' or mode='all'"
)

REFUSED_FUNCTIONS = {
    (f"{_UTILS}._coalesce", "coalesce"): _SORTS,
    (f"{_UTILS}._sort_edge_index", "sort_edge_index"): _SORTS,
    (f"{_UTILS}.undirected", "to_undirected"): (
        "adds the reverse of edges; give undirected=True where the graph is made, and leave it out"
    ),
    (f"{_UTILS}.undirected", "is_undirected"): _ASKS,
    (f"{_UTILS}.loop", "contains_self_loops"): _ASKS,
    (f"{_UTILS}.loop", "get_self_loop_attr"): _CHOOSES,
    (f"{_UTILS}.isolated", "contains_isolated_nodes"): _ASKS,
    (f"{_UTILS}.isolated", "remove_isolated_nodes"): "leaves vertices out; do so before the graph is made",
    (f"{_UTILS}._homophily", "homophily"): _ASKS,
    (f"{_UTILS}._assortativity", "assortativity"): _ASKS,
    (f"{_UTILS}._subgraph", "subgraph"): _PARTS,
    (f"{_UTILS}._subgraph", "bipartite_subgraph"): _PARTS,
    (f"{_UTILS}._subgraph", "k_hop_subgraph"): _PARTS,
    (f"{_UTILS}.dropout", "dropout_node"): "drops vertices with all their edges; drop single edges by dropout_edge",
    (f"{_UTILS}.dropout", "dropout_path"): _WALKS,
    (f"{_UTILS}._to_dense_adj", "to_dense_adj"): _MATRIX,
    (f"{_UTILS}.sparse", "to_torch_coo_tensor"): _MATRIX,
    (f"{_UTILS}.sparse", "to_torch_csr_tensor"): _MATRIX,
    (f"{_UTILS}.sparse", "to_torch_csc_tensor"): _MATRIX,
    (f"{_UTILS}.sparse", "to_torch_sparse_tensor"): _MATRIX,
    (f"{_UTILS}.convert", "to_scipy_sparse_matrix"): _MATRIX,
    (f"{_UTILS}._spmm", "spmm"): _MATRIX,
    (f"{_UTILS}.ppr", "get_ppr"): _RANKS,
    (f"{_UTILS}.augmentation", "add_random_edge"): _ADDS,
    (f"{_UTILS}._negative_sampling", "negative_sampling"): _PAIRS,
    (f"{_UTILS}._negative_sampling", "batched_negative_sampling"): _PAIRS,
    (f"{_UTILS}._negative_sampling", "structured_negative_sampling"): _PAIRS,
}
"""The reasons, by the module and the name of the function. Each function reads the edges of the graph."""

ARGUMENT = {"spmm": "src"}
"""The argument that has the edges, where it is not called `edge_index`."""


def refusing(name: str, reason: str) -> Callable[..., NoReturn]:
    """Return a replacement that refuses a function of PyG for a reason."""

    def refuse(tensors: EdgeTensors, *_: Any, **__: Any) -> NoReturn:
        raise tensors.refuse(f"{name} {reason}")

    return refuse


def mask_feature(
    tensors: EdgeTensors, original: Any, x: Tensor, p: float = 0.5, mode: str = "col", *args: Any, **kwargs: Any
) -> Any:
    """Mask features by random numbers of rows.

    Raises:
        ModelError: the numbers are those of columns.
    """
    training = kwargs.get("training", args[1] if len(args) > 1 else True)
    if mode == "col" and training and p:
        raise tensors.refuse(f"mask_feature {_MASKS}")
    return original(x, p, mode, *args, **kwargs)
