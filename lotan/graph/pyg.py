"""Graphs of PyG: the conversion of `torch_geometric.data.Data` to a graph's arrays, and back."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from lotan.errors import GraphError
from lotan.graph.arrays import GraphArrays
from lotan.graph.given_ends import edge_ends, require_vertices
from lotan.graph.given_tables import as_numpy
from planner.spec import SPLITS

Array = npt.NDArray[np.generic]

IDS = "n_id"
"""The attribute for the ids of vertices, as PyG's loaders name it."""


def arrays_of(data: Any) -> dict[str, Any]:
    """Return the arguments of `Graph.from_arrays` for a PyG data object.

    Args:
        data: a `torch_geometric.data.Data`.

    Raises:
        GraphError: an attribute is missing, has a wrong shape, or has no place in a graph.
    """
    if hasattr(data, "node_types"):
        raise GraphError(
            f"{type(data).__name__} has several types of vertices; use lotan.HeteroGraph.from_pyg, or give data.to_homogeneous()."
        )
    x, edge_index = _features(data), _required(data, "edge_index")
    src, dst = edge_ends("data.edge_index", edge_index)
    counted = "data.num_nodes is" if _attribute(data, "x") is None else "data.x has"
    for ends in (src, dst):
        require_vertices("data.edge_index", ends, len(x), f"; expected 0 to {len(x) - 1}, as {counted} {len(x)}")
    ids, edges = _ids(data, len(x)), len(src)
    if ids is not None:
        src, dst = ids[src], ids[dst]
    return {
        "features": x,
        "src": src,
        "dst": dst,
        "weight": _weight(data, edges),
        "label": _label(data, len(x)),
        "split": _split(data, len(x)),
        "ids": ids,
        "vertex_weight": _of_vertices(data, "vertex_weight", len(x), "one number for each vertex"),
        "edge_attr": _of_edges(data, "edge_attr", edges, "numbers"),
        "edge_type": _of_edges(data, "edge_type", edges, "integers"),
        "batch": _of_vertices(data, "batch", len(x), f"a group for each vertex, [{len(x)}]"),
    }


def data_of(arrays: GraphArrays, grouped: bool = False) -> Any:
    """Return a graph's arrays as a `torch_geometric.data.Data`, with copies of them.

    Args:
        arrays: the arrays.
        grouped: if True, the last of the features is the number of the vertex's group (default: False).

    Raises:
        GraphError: torch_geometric is not installed.
    """
    import torch

    try:
        kind = import_module("torch_geometric.data").Data
    except ImportError as error:
        raise GraphError("to_pyg needs PyG, which is not installed; run: pip install torch-geometric") from error
    edge_index = torch.from_numpy(np.stack([arrays.src, arrays.dst]).astype(np.int64))
    x = torch.from_numpy(arrays.features.copy())
    data = kind(x=x[:, :-1].contiguous() if grouped else x, edge_index=edge_index)
    if grouped:
        data.batch = x[:, -1].long()
    if arrays.weight is not None:
        data.edge_weight = torch.from_numpy(arrays.weight.copy())
    if arrays.vertex_weight is not None:
        data.vertex_weight = torch.from_numpy(arrays.vertex_weight.copy())
    if arrays.edge_attr is not None:
        attributes = torch.from_numpy(arrays.edge_attr.copy())
        data.edge_attr = attributes[:, 0] if arrays.flat else attributes
    if arrays.edge_type is not None:
        data.edge_type = torch.from_numpy(arrays.edge_type.copy())
    data.y = torch.from_numpy(arrays.label.copy())
    for number, name in enumerate(SPLITS):
        data[f"{name}_mask"] = torch.from_numpy(arrays.split == number)
    textual = arrays.ids.dtype == object
    data[IDS] = arrays.ids.tolist() if textual else torch.from_numpy(arrays.ids.astype(np.int64))
    return data


def _attribute(data: Any, name: str) -> Any:
    return getattr(data, name, None)


def _features(data: Any) -> Array:
    """Return the features [vertices, width]. Without `x`, the width is 0, and `num_nodes` says how many vertices there are."""
    value = _attribute(data, "x")
    if value is not None:
        x = _array("x", value)
        return x[:, None] if x.ndim == 1 else x
    if not hasattr(data, "__contains__") or "num_nodes" not in data:
        raise _lacks(
            data, "x", "give each vertex features, such as its degree, or num_nodes for a graph without features"
        )
    return np.zeros((int(data.num_nodes), 0), dtype=np.float32)


def _required(data: Any, name: str) -> Array:
    value = _attribute(data, name)
    if value is None:
        raise _lacks(data, name, "load the data without the transform ToSparseTensor")
    return _array(name, value)


def _lacks(data: Any, name: str, advice: str) -> GraphError:
    return GraphError(f"{type(data).__name__} has no {name}; expected a PyG Data object with one: {advice}.")


def _array(name: str, value: Any) -> Array:
    """Return a tensor, on any device, as an array."""
    if str(getattr(value, "layout", None)) != "torch.strided":  # a sparse tensor, or no tensor
        raise GraphError(f"data.{name}: is a {type(value).__name__}; expected a dense tensor.")
    return as_numpy(value)


def _weight(data: Any, edges: int) -> Array | None:
    """Return the edges' weights: `edge_weight`, or else an `edge_attr` of one number each."""
    array = _of_edges(data, "edge_weight", edges, "one number")
    if array is None:
        attributes = _of_edges(data, "edge_attr", edges, "numbers")
        one_number = attributes is not None and (attributes.ndim == 1 or attributes.shape[1] == 1)
        return attributes.reshape(-1) if attributes is not None and one_number else None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise GraphError(_misshapen("edge_weight", array, edges, "one number"))
    return array


def _of_edges(data: Any, name: str, edges: int, what: str) -> Array | None:
    """Return an attribute that has a row for each edge, or None if there is none."""
    value = _attribute(data, name)
    if value is None:
        return None
    array = _array(name, value)
    if len(array.shape) not in (1, 2) or len(array) != edges:
        raise GraphError(_misshapen(name, array, edges, what))
    return array


def _misshapen(name: str, array: Array, edges: int, what: str) -> str:
    given = f"has shape {list(array.shape)}, but there are {edges:,} edges; expected {what} each"
    return f"data.{name}: {given}. Set data.{name} = None to train without it."


def _label(data: Any, vertices: int) -> Array | None:
    value = _attribute(data, "y")
    if value is None:
        return None
    label = _array("y", value)
    if len(label) != vertices:
        raise GraphError(
            f"data.y: has {len(label):,} rows for {vertices:,} vertices; labels of whole graphs do not train."
        )
    return label


def _of_vertices(data: Any, name: str, vertices: int, expected: str) -> Array | None:
    """Return an attribute with one number for each vertex, or None if there is none."""
    value = _attribute(data, name)
    if value is None:
        return None
    array = _array(name, value)
    if array.shape != (vertices,):
        raise GraphError(f"data.{name}: has shape {list(array.shape)}; expected {expected}.")
    return array


def _split(data: Any, vertices: int) -> npt.NDArray[np.int8] | None:
    """Return the number of each vertex's split, from its three masks."""
    split = np.full(vertices, -1, dtype=np.int8)
    given = [
        (number, f"{name}_mask") for number, name in enumerate(SPLITS) if _attribute(data, f"{name}_mask") is not None
    ]
    for number, name in given:
        mask = _array(name, _attribute(data, name))
        if mask.shape != (vertices,) or mask.dtype != np.bool_:
            several = f"; choose one of them: data.{name} = data.{name}[:, 0]" if mask.ndim == 2 else ""
            raise GraphError(
                f"data.{name}: is {mask.dtype} of shape {list(mask.shape)}; expected booleans, [{vertices}]{several}."
            )
        if (split[mask] != -1).any():
            raise GraphError(f"data.{name}: has vertices that another mask has too; a vertex is in one split at most.")
        split[mask] = number
    return split if given else None


def _ids(data: Any, vertices: int) -> Any:
    value = _attribute(data, IDS)
    if value is None:
        return None
    ids = np.asarray(value, dtype=object) if isinstance(value, list) else _array(IDS, value)
    if ids.shape != (vertices,):
        raise GraphError(f"data.{IDS}: has shape {list(ids.shape)}; expected an id for each vertex, [{vertices}].")
    if len(ids) and (ids != np.arange(vertices)).any():
        return ids
    return None
