"""Graphs of several types of vertices in other forms: PyG's `HeteroData`, and folders of Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lotan.errors import GraphError
from lotan.graph.arrays import GraphArrays
from lotan.graph.files import make_room
from lotan.graph.given_ends import edge_ends, require_vertices
from lotan.graph.given_tables import as_numpy
from lotan.graph.given_types import GivenTypes
from lotan.graph.pyg import IDS
from lotan.graph.typed_folders import EDGES, VERTICES, check_names, file_name
from planner.spec import SPLITS
from planner.vertex_types import Relation

Array = npt.NDArray[Any]
Tables = dict[str, dict[str, Array]]


def tables_of(data: Any) -> tuple[Tables, dict[Relation, dict[str, Array]]]:
    """Return the tables of vertices and edges of a PyG data object.

    Args:
        data: a `torch_geometric.data.HeteroData`.

    Raises:
        GraphError: it is something else, an attribute is missing, or a relation names vertices that are not there.
    """
    if not (hasattr(data, "node_types") and hasattr(data, "edge_types")):
        raise GraphError(
            f"{type(data).__name__} has no types of vertices; expected a PyG HeteroData, or use lotan.Graph.from_pyg."
        )
    vertices = {name: _vertices(name, data[name]) for name in data.node_types}
    edges = {relation: _edges(relation, data[relation], vertices) for relation in data.edge_types}
    return vertices, edges


def _vertices(name: str, store: Any) -> dict[str, Array]:
    count = store.num_nodes
    if count is None:
        raise GraphError(f"data[{name!r}] has neither x nor num_nodes; expected one of them.")
    ids = store[IDS] if IDS in store else np.arange(count)
    table: dict[str, Array] = {"id": np.asarray(ids, dtype=object) if isinstance(ids, list) else as_numpy(ids)}
    if "x" in store:
        x = as_numpy(store["x"])
        table["features"] = x if x.ndim == 2 else x[:, np.newaxis]
    if "y" in store:
        table["label"] = as_numpy(store["y"])
    masks = {f"{split}_mask": as_numpy(store[f"{split}_mask"]) for split in SPLITS if f"{split}_mask" in store}
    for attribute, array in (table | masks).items():
        if not array.ndim or len(array) != count:
            rows = f"{len(array):,} rows" if array.ndim else "no rows"
            raise GraphError(
                f"data[{name!r}].{attribute}: has {rows}, but there are {count:,} vertices; expected one row for each."
            )
    return table | masks


def _edges(relation: Relation, store: Any, vertices: Tables) -> dict[str, Array]:
    where = f"data[{relation!r}]"
    if "edge_index" not in store:
        raise GraphError(f"{where} has no edge_index; load the data without the transform ToSparseTensor.")
    src, dst = edge_ends(f"{where}.edge_index", as_numpy(store["edge_index"]))
    table: dict[str, Array] = {}
    for end, rows, name in (("src", src, relation[0]), ("dst", dst, relation[2])):
        if name not in vertices:
            raise GraphError(
                f"{where} joins vertices of type {name!r}, and there are none; give data[{name!r}] features x or num_nodes."
            )
        ids = vertices[name]["id"]
        require_vertices(f"{where}.edge_index", rows, len(ids), f" of type {name!r}; expected 0 to {len(ids) - 1}")
        table[end] = ids[rows]
    if "edge_weight" in store:
        table["edge_weight"] = _weight(where, as_numpy(store["edge_weight"]), len(src))
    if "edge_attr" in store:
        table["edge_attr"] = _attributes(where, as_numpy(store["edge_attr"]), len(src))
    return table


def _weight(where: str, weight: Array, edges: int) -> Array:
    """Return the weights of a relation's edges. [edges]."""
    if weight.shape not in ((edges,), (edges, 1)):
        raise GraphError(
            f"{where}.edge_weight: has shape {list(weight.shape)}, but there are {edges:,} edges; expected one number each."
        )
    return weight.reshape(-1)


def _attributes(where: str, attributes: Array, edges: int) -> Array:
    """Return the attributes of a relation's edges, [edges, width] or [edges]."""
    if attributes.ndim not in (1, 2) or len(attributes) != edges:
        raise GraphError(
            f"{where}.edge_attr: has shape {list(attributes.shape)}, but there are {edges:,} edges; expected [{edges}, width] "
            f"or [{edges}]."
        )
    return attributes


def data_of(arrays: GraphArrays, given: GivenTypes) -> Any:
    """Return a graph's arrays as a `torch_geometric.data.HeteroData`, with copies of them.

    Raises:
        GraphError: torch_geometric is not installed.
    """
    import torch

    try:
        data = import_module("torch_geometric.data").HeteroData()
    except ImportError as error:
        raise GraphError("to_pyg needs PyG, which is not installed; run: pip install torch-geometric") from error
    for name, table in _tables(arrays, given)[0].items():
        store = data[name]
        store.num_nodes = len(table["id"])
        ids = table.pop("id")
        store[IDS] = ids.tolist() if ids.dtype == object else torch.from_numpy(ids.astype(np.int64))
        for attribute, array in table.items():
            if attribute == "split":
                for number, split in enumerate(SPLITS):
                    store[f"{split}_mask"] = torch.from_numpy(array == number)
            else:
                store[{"features": "x", "label": "y"}[attribute]] = torch.from_numpy(array.copy())
    for number, (chosen, ends) in enumerate(_edges_by_relation(arrays, given)):
        relation = given.types.relations[number]
        data[relation].edge_index = torch.from_numpy(np.stack(ends))
        attributes = _own_attributes(arrays, given, number, chosen)
        if attributes is not None:
            is_flat = relation in given.types.flat
            data[relation].edge_attr = torch.from_numpy(attributes[:, 0].copy() if is_flat else attributes)
        if arrays.weight is not None:
            data[relation].edge_weight = torch.from_numpy(arrays.weight[chosen])
    return data


def write(folder: Path, arrays: GraphArrays, given: GivenTypes, overwrite: bool) -> None:
    """Write a graph's arrays as a folder of Parquet.

    Raises:
        GraphError: a graph is there already, or a name of a type or of a relation cannot be that of a file.
    """
    from pyarrow import parquet

    check_names(given.types.names, given.types.relations)
    make_room(folder, overwrite, (VERTICES, EDGES))
    vertices, ids = _tables(arrays, given)
    for part in (VERTICES, EDGES):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for name, table in vertices.items():
        columns = {column: pa.array(list(array) if array.ndim > 1 else array) for column, array in table.items()}
        parquet.write_table(pa.table(columns), folder / VERTICES / f"{name}.parquet")
    for number, (chosen, (src, dst)) in enumerate(_edges_by_relation(arrays, given)):
        source, destination = given.types.ends(number)
        columns = {"src": pa.array(ids[source][src]), "dst": pa.array(ids[destination][dst])}
        if arrays.weight is not None:
            columns["weight"] = pa.array(arrays.weight[chosen])
        attributes = _own_attributes(arrays, given, number, chosen)
        if attributes is not None:
            columns["edge_attr"] = pa.array(list(attributes))
        parquet.write_table(pa.table(columns), folder / EDGES / f"{file_name(given.types.relations[number])}.parquet")


def _tables(arrays: GraphArrays, given: GivenTypes) -> tuple[Tables, list[Array]]:
    """Return the columns of the vertices of each type, and the ids of each."""
    types = given.types
    numbers = arrays.features[:, types.type_column]
    vertices: Tables = {}
    all_ids = []
    for number, name in enumerate(types.names):
        here = np.flatnonzero(numbers == number)
        ids = given.ids[number] if given.ids else _plain_ids(arrays.ids[here], name)
        all_ids.append(ids)
        vertices[name] = {"id": ids}
        if types.widths[number]:
            vertices[name]["features"] = arrays.features[here, : types.widths[number]]
        if number == types.target:
            vertices[name] |= {"label": arrays.label[here], "split": arrays.split[here]}
            if arrays.vertex_weight is not None:
                vertices[name]["vertex_weight"] = arrays.vertex_weight[here]
    return vertices, all_ids


def _own_attributes(arrays: GraphArrays, given: GivenTypes, relation: int, chosen: Array) -> Array | None:
    """Return the attributes of a relation's edges, float32 [edges, width], or None if they have none."""
    width = given.types.attributes(relation)
    if not width:
        return None
    assert arrays.edge_attr is not None, "a relation has attributes, so the table of all edges has"
    return arrays.edge_attr[chosen, :width].copy()


def _plain_ids(texts: Array, name: str) -> Array:
    """Return the ids of a type, which are texts in the table of all types."""
    plain = [text[len(name) + 1 :] for text in texts]
    try:
        numbers = np.array([int(text) for text in plain], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(plain, dtype=object)
    # texts such as "007" are no numbers
    return numbers if [*map(str, numbers.tolist())] == plain else np.array(plain, dtype=object)


def _edges_by_relation(arrays: GraphArrays, given: GivenTypes) -> Iterator[tuple[Array, tuple[Array, Array]]]:
    """Yield the positions of each relation's edges, and their ends as positions among the vertices of their types."""
    assert arrays.edge_type is not None, "a graph with relations has types of edges"
    types = arrays.features[:, given.types.type_column]
    places = np.zeros(len(types), dtype=np.int64)
    for number in range(len(given.types.names)):
        here = np.flatnonzero(types == number)
        places[here] = np.arange(len(here))
    order = np.argsort(arrays.edge_type, kind="stable")
    starts = np.searchsorted(arrays.edge_type[order], range(len(given.types.relations) + 1))
    for first, end in pairwise(starts):
        chosen = order[first:end]
        yield chosen, (places[arrays.src[chosen]], places[arrays.dst[chosen]])
