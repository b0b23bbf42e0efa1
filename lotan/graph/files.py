"""Graphs on disk: names, `.npz` archives and directories of Parquet."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lotan.errors import GraphError
from lotan.graph.arrays import EdgeColumns, GraphArrays, VertexColumns
from lotan.graph.arrow import edge_table, vertex_tables
from lotan.graph.columns import ColumnNames, edge_columns, vertex_columns
from lotan.graph.faults import fault, reason
from lotan.graph.given_arrays import attributes_of
from planner.edge_columns import EdgeData
from planner.spec import SPLITS
from planner.statistics import Statistics

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

VERTICES, EDGES = "vertices.parquet", "edges.parquet"
SHARED_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"  # beside the checkout

GROUP_NUMBERS = 1 << 23  # features in a row group: 32 MB, which one Spark task reads

_CSR = ("x_indptr", "x_indices", "x_data", "x_shape")


def data_directories() -> tuple[Path, ...]:
    """Return the folders that are searched for named graphs: `$LOTAN_DATA`, then `../shared/data` beside the checkout."""
    named = os.environ.get("LOTAN_DATA")
    return (Path(named), SHARED_DATA) if named else (SHARED_DATA,)


def find(path_or_name: str | Path) -> Path:
    """Return the `.npz` file or the directory of Parquet of a path, or of a name such as `cora`.

    Raises:
        GraphError: there is no graph of that path or name.
    """
    given = Path(path_or_name)
    places = [given]
    if len(given.parts) == 1:
        places += [folder / name for folder in data_directories() for name in (f"{given}.npz", str(given))]
    if any(len(os.fsencode(part)) > 255 for part in given.parts):  # no file system allows it, and a look-up raises
        raise GraphError(
            f"No graph {str(path_or_name)[:40]!r}...: the name is too long for a file. Give a shorter path."
        )
    for place in places:
        if (place.suffix == ".npz" and place.is_file()) or (place / VERTICES).exists():
            return place
    if given.exists():
        raise GraphError(
            f"{given} is neither an .npz file nor a directory with {VERTICES} and {EDGES}. "
            "Write the graph in one of these forms; docs/reference/graphs.md describes both."
        )
    raise GraphError(
        f"No graph {str(path_or_name)!r}: looked at {', '.join(str(place) for place in places)}. "
        "Give a path, set LOTAN_DATA to the directory of your data sets, or see the names with `lotan datasets`."
    )


def read_npz(path: Path) -> tuple[VertexColumns, EdgeColumns]:
    """Read an `.npz` archive.

    Its arrays are `num_nodes`, `edge_src`, `edge_dst`, features (`x`, or CSR), `y`, and an `*_idx` for each split. It may
    have `edge_attr` [edges, width] and `edge_type` [edges]. The vertices' ids are 0 to num_nodes - 1. Sparse features
    become dense and take 4 bytes x vertices x width.

    Raises:
        GraphError: the file cannot be read, or an array is missing or does not fit the others.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            held = {name: archive[name] for name in archive.files}
    except Exception as error:  # its type depends on where the file was cut or overwritten
        raise GraphError(
            f"{path} cannot be read as an .npz archive: {reason(error)}. It may be truncated: copy or write it again."
        ) from error
    _require(path, held, ("num_nodes", "edge_src", "edge_dst", *(("x",) if "x" in held else _CSR)))
    try:
        return _columns_of(held)
    except (ValueError, IndexError, TypeError) as error:
        raise GraphError(f"{path}: its arrays do not fit together: {reason(error)}. Write the file again.") from error
    except MemoryError as error:
        raise GraphError(
            f"{path}: its features do not fit in memory: {error}. Give it as Parquet, to Spark."
        ) from error


def _require(path: Path, held: Mapping[str, object], names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in held]
    if missing:
        raise GraphError(
            f"{path}: there is no array {', '.join(map(repr, missing))}; the arrays are {', '.join(sorted(held)) or 'none'}. "
            f"Features are `x` (dense), or {', '.join(_CSR)} (CSR)."
        )


def _columns_of(held: Mapping[str, npt.NDArray[np.generic]]) -> tuple[VertexColumns, EdgeColumns]:
    count = int(_whole(held, "num_nodes"))
    features = _real(held, "x").astype(np.float32, copy=False) if "x" in held else _dense(held, count)
    label = _whole(held, "y") if "y" in held else np.full(count, -1, dtype=np.int64)
    if features.ndim != 2 or len(features) != count or label.shape != (count,):
        raise ValueError(f"{count} vertices, but features of shape {features.shape} and labels of {label.shape}")
    attributes = attributes_of(_real(held, "edge_attr")) if "edge_attr" in held else None
    types = _whole(held, "edge_type") if "edge_type" in held else None
    edges = EdgeColumns(_whole(held, "edge_src"), _whole(held, "edge_dst"), None, attributes, types)
    if edges.src.shape != edges.dst.shape or edges.src.ndim != 1:
        raise ValueError(f"edge_src of shape {edges.src.shape} and edge_dst of {edges.dst.shape}")
    if attributes is not None and (attributes.ndim != 2 or len(attributes) != len(edges.src)):
        raise ValueError(f"{len(edges.src)} edges, but edge_attr of shape {held['edge_attr'].shape}")
    if types is not None and types.shape != edges.src.shape:
        raise ValueError(f"{len(edges.src)} edges, but edge_type of shape {types.shape}")
    return VertexColumns(np.arange(count), features, label, _splits(held, count)), edges


def _splits(held: Mapping[str, npt.NDArray[np.generic]], count: int) -> npt.NDArray[np.int8]:
    split = np.full(count, -1, dtype=np.int8)
    for code, name in enumerate(SPLITS):
        rows = held.get(f"{name}_idx", np.zeros(0, dtype=np.int64))
        if rows.dtype.kind == "i" and rows.min(initial=0) < 0:
            raise ValueError(f"{name}_idx holds {rows.min()}, and vertices are numbered from 0")
        taken = split[rows][split[rows] >= 0]
        if len(taken):
            raise ValueError(f"{name}_idx shares {len(taken)} vertices with {SPLITS[int(taken.flat[0])]}_idx")
        split[rows] = code
    return split


def _whole(held: Mapping[str, npt.NDArray[np.generic]], name: str) -> npt.NDArray[np.int64]:
    """Return an array as int64, or raise a ValueError if its numbers would change."""
    array = _real(held, name)
    with np.errstate(invalid="ignore"):
        found = array.astype(np.int64)
    if not np.array_equal(found, array):
        raise ValueError(f"{name} holds numbers that are not whole, or beyond 2**63 - 1")
    return found


def _real(held: Mapping[str, npt.NDArray[np.generic]], name: str) -> npt.NDArray[np.generic]:
    if held[name].dtype.kind not in "biuf":
        raise ValueError(f"{name} is of type {held[name].dtype}, not of numbers")
    return held[name]


def _dense(held: Mapping[str, npt.NDArray[np.generic]], count: int) -> npt.NDArray[np.float32]:
    shape = tuple(int(size) for size in _whole(held, "x_shape"))
    if len(shape) != 2 or shape[0] != count:  # checked before the memory is allocated
        raise ValueError(f"{count} vertices, but features of shape {shape}")
    dense = np.zeros(shape, dtype=np.float32)
    rows, columns = np.repeat(np.arange(count), np.diff(held["x_indptr"])), held["x_indices"]
    if columns.min(initial=0) < 0:
        raise ValueError(f"x_indices holds {columns.min()}, and columns are numbered from 0")
    dense[rows, columns] = _real(held, "x_data")
    return dense


def column_names(directory: Path) -> ColumnNames:
    """Return the column names of a directory of Parquet: the default names.

    The edges may have `weight`, `edge_attr` (an array of numbers) and `edge_type`.
    """
    there = _open(directory / EDGES).schema.names
    weight, attributes, types = (name if name in there else None for name in ("weight", "edge_attr", "edge_type"))
    return ColumnNames(weight=weight, edge_features=attributes, edge_type=types)


def read_directory(directory: Path, names: ColumnNames) -> tuple[VertexColumns, EdgeColumns]:
    """Read both tables with Arrow, without Spark.

    Raises:
        GraphError: a file is missing, truncated or not Parquet, a column is missing, or a column has a bad value.
    """
    vertices = vertex_columns(_read(directory / VERTICES), names)
    return vertices, edge_columns(_read(directory / EDGES), names, vertices.ids)


def check_readable(directory: Path) -> None:
    """Read the footers of all files of a directory of Parquet.

    Raises:
        GraphError: a file is missing or truncated.
    """
    for name in (VERTICES, EDGES):
        path = directory / name
        try:
            _open(path).count_rows()
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from error


def estimate(directory: Path, names: ColumnNames, undirected: bool) -> Statistics:
    """Return statistics from the files' footers, without reading rows.

    Self-loops are not counted. With `undirected`, the number of edges is an upper bound. The width of features with rows
    of different lengths is an average.
    """
    vertices, edges = _open(directory / VERTICES), _open(directory / EDGES)
    attributes = names.edge_feature_columns
    width = _width(edges, attributes[0]) if len(attributes) == 1 else len(attributes)
    return Statistics(
        vertices=vertices.count_rows(),
        edges=edges.count_rows() * (2 if undirected else 1),
        width=_width(vertices, names.feature_columns[0]) if len(names.feature_columns) == 1 else 0,
        weighted=names.weight is not None,
        edge_data=EdgeData(width if attributes else None, names.edge_type is not None),
    )


def _width(vertices: Dataset, features: str) -> int:
    """Return the number of features in the first row group, or 0 without rows.

    It is read from the footer, because reading a single row takes the memory of thousands of rows.
    """
    for fragment in vertices.get_fragments():
        metadata = fragment.metadata
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            columns = (group.column(i) for i in range(group.num_columns))
            counts = [column.num_values for column in columns if column.path_in_schema.split(".")[0] == features]
            if group.num_rows and counts:
                return int(counts[-1]) // int(group.num_rows)  # a Spark ML vector's values come last
    return 0


def write_directory(directory: Path, graph: GraphArrays) -> None:
    """Write a graph in memory as two Parquet files."""
    from pyarrow import parquet  # here, as in `_open`

    directory.mkdir(parents=True, exist_ok=True)
    rows = max(1, GROUP_NUMBERS // max(1, graph.features.shape[1]))
    parquet.write_table(vertex_tables(graph, split_names=True), directory / VERTICES, row_group_size=rows)
    edges = edge_table(graph, keep_id_type=True)
    kept = edges if graph.weight is not None else edges.drop_columns(["weight"])
    parquet.write_table(kept, directory / EDGES)


def _open(path: Path) -> Dataset:
    from pyarrow import dataset  # here, for it loads pandas, which a graph in arrays has no need of

    try:
        return dataset.dataset(path, format="parquet")
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _read(path: Path) -> pa.Table:
    try:
        return _open(path).to_table()
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> GraphError:
    missing = isinstance(error, FileNotFoundError)
    problem = "there is no such file" if missing else f"cannot be read as Parquet: {reason(error)}"
    return fault(str(path), "", problem, "It may be truncated: copy or write it again.")
