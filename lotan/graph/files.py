"""Graphs on disk: names, `.npz` archives and directories of Parquet."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from lotan.errors import GraphError
from lotan.files import SAVED_MODEL, expanded
from lotan.graph import file_tables
from lotan.graph.arrays import EdgeColumns, GraphArrays, Ids, VertexColumns, order_of_ids
from lotan.graph.arrow import edge_table, link_table, vertex_tables
from lotan.graph.column_names import ColumnNames
from lotan.graph.columns import edge_columns, require_columns, vertex_columns
from lotan.graph.edges_in_files import Parts, edges_in_parts
from lotan.graph.faults import reason
from lotan.graph.feature_parts import vertices_in_parts
from lotan.graph.file_tables import open_table, read_rows
from lotan.graph.given_arrays import attributes_of
from lotan.graph.given_labels import GivenLabels
from lotan.graph.places import ARROW_FORMATS, Place, is_uri, place_of
from lotan.graph.splits import UNKNOWN, codes_of
from lotan.memory.mapped import MappedMemory
from planner.spec import SPLITS
from planner.statistics import Statistics

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

VERTICES, EDGES = "vertices.parquet", "edges.parquet"
SHARED_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"  # beside the checkout

GROUP_NUMBERS = 1 << 23  # features in a row group: 32 MB, which one Spark task reads

_CSR = ("x_indptr", "x_indices", "x_data", "x_shape")
_SPLIT_ARRAYS = tuple(f"{name}_{form}" for name in SPLITS for form in ("idx", "mask"))
_OF_EDGES = ("edge_src", "edge_dst", "edge_index", "edge_weight", "edge_attr", "edge_type")
_KNOWN = {"num_nodes", "x", *_CSR, "y", "vertex_weight", "split", *_OF_EDGES, *_SPLIT_ARRAYS}


class Archive(NamedTuple):
    """The content of an `.npz` archive."""

    vertices: VertexColumns
    edges: EdgeColumns
    unread: tuple[str, ...]  # the names of arrays that mean nothing to a graph


class TablePlaces(NamedTuple):
    """The places of a graph's two tables."""

    vertices: Place
    edges: Place

    @property
    def by_arrow(self) -> bool:
        """True if this process can read both without Spark."""
        return self.vertices.by_arrow and self.edges.by_arrow

    def read(self, names: ColumnNames) -> tuple[VertexColumns, EdgeColumns]:
        """Read the named columns of both tables with Arrow.

        Args:
            names: the names of columns.

        Raises:
            GraphError: a file is missing, truncated or of another format, a column is missing, or it has a bad value.
        """
        vertices, there = self._vertices(names)
        found = vertex_columns(read_rows(self.vertices, vertices, there.of_vertices()), names)
        edges, there = self._edges(names)
        return found, edge_columns(read_rows(self.edges, edges, there.of_edges()), names, found.ids)

    def read_vertices(self, names: ColumnNames, mapped: MappedMemory) -> VertexColumns:
        """Read the named columns of the vertices, of which the features are read part by part into files.

        Raises:
            EngineError: the disk is full.
            GraphError: as `read`.
        """
        vertices, there = self._vertices(names)
        return vertices_in_parts(self.vertices, vertices, there, mapped)

    def ids(self, names: ColumnNames) -> Ids:
        """Read the ids of the vertices, and return them in ascending order.

        Raises:
            GraphError: a file cannot be read, there are no vertices, or an id is null or occurs twice.
        """
        vertices = open_table(self.vertices)
        require_columns("vertices", [names.id], vertices.schema.names)
        bare = replace(names, features=(), label=None, split=None, batch=None, vertex_weight=None)
        ids = vertex_columns(read_rows(self.vertices, vertices, [names.id]), bare).ids
        found: Ids = ids[order_of_ids(ids)]
        return found

    def edges_in_parts(self, names: ColumnNames, ids: Ids) -> Parts:
        """Return a function that reads the named columns of the edges part by part, see `lotan.graph.edges_in_files`.

        Raises:
            GraphError: as `read`.
        """
        edges, there = self._edges(names)
        return edges_in_parts(self.edges, edges, there, ids)

    def _vertices(self, names: ColumnNames) -> tuple[Dataset, ColumnNames]:
        vertices = open_table(self.vertices)
        there = names.present(vertices.schema.names)
        require_columns("vertices", there.of_vertices(), vertices.schema.names)
        return vertices, there

    def _edges(self, names: ColumnNames) -> tuple[Dataset, ColumnNames]:
        edges = open_table(self.edges)
        there = names.present_edges(edges.schema.names)
        require_columns("edges", there.of_edges(), edges.schema.names)
        return edges, there

    def estimate(self, names: ColumnNames, undirected: bool) -> Statistics:
        """Return statistics of the tables, as `lotan.graph.file_tables.estimate` does."""
        vertices, edges = open_table(self.vertices), open_table(self.edges)
        names = names.present(vertices.schema.names).present_edges(edges.schema.names)
        return file_tables.estimate(vertices, edges, names, undirected)


def data_directories() -> tuple[Path, ...]:
    """Return the folders that are searched for named graphs: `$LOTAN_DATA`, then `../shared/data` beside the checkout."""
    named = os.environ.get("LOTAN_DATA")
    return (Path(named), SHARED_DATA) if named else (SHARED_DATA,)


def find(path_or_name: str | Path, format: str | None = None) -> Path | TablePlaces:
    """Return the `.npz` file of a path or of a name such as `cora`, or the places of the tables in a folder.

    Args:
        path_or_name: a path, a URI of a folder, or a name.
        format: the format of the tables, see `lotan.graph.places`; None to take it from the files' names.

    Raises:
        GraphError: there is no graph of that path or name.
    """
    if is_uri(path_or_name):
        base = place_of(path_or_name)
        if base.where == "uri":
            return _tables_at(base.name.rstrip("/"), format)
        path_or_name = base.name
    given = expanded(path_or_name)
    places = [given]
    if len(given.parts) == 1:
        places += [folder / name for folder in data_directories() for name in (f"{given}.npz", str(given))]
    if any(len(os.fsencode(part)) > 255 for part in given.parts):  # no file system allows it, and a look-up raises
        raise GraphError(
            f"No graph {str(path_or_name)[:40]!r}...: the name is too long for a file. Give a shorter path."
        )
    for place in places:
        if place.suffix == ".npz" and place.is_file():
            return place
        found = tables_in(place, format)
        if found is not None:
            return found
    if given.exists():
        raise GraphError(
            f"{given} is neither an .npz file nor a directory with {VERTICES} and {EDGES}. "
            "Write the graph in one of these forms, which docs/reference/graphs.md describes, or name both tables."
        )
    raise GraphError(
        f"No graph {str(path_or_name)!r}: looked at {', '.join(str(place) for place in places)}. "
        "Give a path, set LOTAN_DATA to the directory of your data sets, or see the names with `lotan datasets`."
    )


def tables_in(folder: Path, format: str | None = None) -> TablePlaces | None:
    """Return the places of the two tables in a folder, or None if it has no vertices.

    They are called `vertices` and `edges`, with the format as their ending or, for folders, without one.
    """
    formats = ARROW_FORMATS if format is None else (format,)
    for name, ending in [*((f"vertices.{one}", f".{one}") for one in formats), ("vertices", "")]:
        if (folder / name).exists():
            form = format or ending[1:] or "parquet"
            return TablePlaces(
                *(Place("path", str(folder / f"{table}{ending}"), form) for table in ("vertices", "edges"))
            )
    return None


def _tables_at(uri: str, format: str | None) -> TablePlaces:
    """Return the places of the tables below a URI. Arrow's formats have endings, and folders of other formats have none."""
    form = format or "parquet"
    ending = f".{form}" if form in ARROW_FORMATS else ""
    return TablePlaces(*(Place("uri", f"{uri}/{table}{ending}", form) for table in ("vertices", "edges")))


def read_npz(path: Path) -> Archive:
    """Read an `.npz` archive.

    Its arrays are the edges (`edge_src` and `edge_dst`, or `edge_index` [2, edges]) and the features (`x`, or CSR). It may
    have `num_nodes`, `y`, `vertex_weight`, and an `*_idx` or `*_mask` for each split, or `split` with the names of splits
    [vertices]. Edges may have `edge_weight` [edges], `edge_attr` [edges, width] and `edge_type` [edges]. The vertices' ids
    are 0 to num_nodes - 1. Sparse features become dense and take 4 bytes x vertices x width.

    Raises:
        GraphError: the file cannot be read, or an array is missing or does not fit the others.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            held = {name: archive[name] for name in archive.files}
    except Exception as error:  # its type depends on where the file was cut or overwritten
        if "allow_pickle" in str(error):
            raise GraphError(
                f"{path}: an array holds Python objects, which could run code when they are read. Write texts with '' for none, "
                "np.array(values, dtype=str), and numbers with NaN."
            ) from error
        raise GraphError(
            f"{path} cannot be read as an .npz archive: {reason(error)}. It may be truncated: copy or write it again."
        ) from error
    _require(path, held, () if "edge_index" in held else ("edge_src", "edge_dst"))
    is_bare = "num_nodes" in held and not any(name in held for name in _CSR)  # there are no features
    _require(path, held, ("x",) if "x" in held else ("num_nodes", *(() if is_bare else _CSR)))
    try:
        vertices, edges = _columns_of(held)
    except (ValueError, IndexError, TypeError) as error:
        raise GraphError(f"{path}: its arrays do not fit together: {reason(error)}. Write the file again.") from error
    except MemoryError as error:
        raise GraphError(
            f"{path}: its features do not fit in memory: {error}. Give it as Parquet, to Spark."
        ) from error
    return Archive(vertices, edges, tuple(sorted(set(held) - _KNOWN)))


def _require(path: Path, held: Mapping[str, object], names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in held]
    if missing:
        raise GraphError(
            f"{path}: there is no array {', '.join(map(repr, missing))}; the arrays are {', '.join(sorted(held)) or 'none'}. "
            f"Features are `x` (dense), or {', '.join(_CSR)} (CSR)."
        )


def _columns_of(held: Mapping[str, npt.NDArray[np.generic]]) -> tuple[VertexColumns, EdgeColumns]:
    count = int(_whole(held, "num_nodes")) if "num_nodes" in held else len(held["x"])
    features = _real(held, "x").astype(np.float32, copy=False) if "x" in held else _dense(held, count)
    given = held.get("y")
    if features.ndim != 2 or len(features) != count or (given is not None and given.shape[:1] != (count,)):
        said = None if given is None else given.shape
        raise ValueError(f"{count} vertices, but features of shape {features.shape} and labels of {said}")
    if given is not None and (given.ndim > 2 or given.dtype.kind not in "biufU"):
        raise ValueError(f"y is of type {given.dtype} and shape {given.shape}, not numbers or texts of vertices")
    if given is not None and given.dtype.kind in "biu":
        given = _whole(held, "y")
    labels = GivenLabels.none(count) if given is None else GivenLabels.of_array(given)
    weight = _real(held, "vertex_weight").astype(np.float32) if "vertex_weight" in held else None
    if weight is not None and weight.shape != (count,):
        raise ValueError(f"{count} vertices, but vertex_weight of shape {weight.shape}")
    return VertexColumns(np.arange(count), features, labels, _splits(held, count), weight), _edges_of(held)


def _edges_of(held: Mapping[str, npt.NDArray[np.generic]]) -> EdgeColumns:
    attributes = attributes_of(_real(held, "edge_attr")) if "edge_attr" in held else None
    types = _whole(held, "edge_type") if "edge_type" in held else None
    weight = _real(held, "edge_weight").astype(np.float32) if "edge_weight" in held else None
    if "edge_index" in held:
        index = _whole(held, "edge_index")
        if index.ndim != 2 or len(index) != 2:
            raise ValueError(f"edge_index of shape {index.shape}, and expected [2, edges]")
        src, dst = index
    else:
        src, dst = _whole(held, "edge_src"), _whole(held, "edge_dst")
    edges = EdgeColumns(src, dst, weight, attributes, types)
    if edges.src.shape != edges.dst.shape or edges.src.ndim != 1:
        raise ValueError(f"edge_src of shape {edges.src.shape} and edge_dst of {edges.dst.shape}")
    if attributes is not None and (attributes.ndim != 2 or len(attributes) != len(edges.src)):
        raise ValueError(f"{len(edges.src)} edges, but edge_attr of shape {held['edge_attr'].shape}")
    for name, column in (("edge_weight", weight), ("edge_type", types)):
        if column is not None and column.shape != edges.src.shape:
            raise ValueError(f"{len(edges.src)} edges, but {name} of shape {column.shape}")
    return edges


def _splits(held: Mapping[str, npt.NDArray[np.generic]], count: int) -> npt.NDArray[np.int8]:
    if "split" in held:
        return _named_splits(held, count)
    split = np.full(count, -1, dtype=np.int8)
    taken_from: dict[int, str] = {}
    for code, name in enumerate(SPLITS):
        both = [f"{name}_{form}" for form in ("idx", "mask") if f"{name}_{form}" in held]
        if len(both) > 1:
            raise ValueError(f"{both[0]} and {both[1]} both say which vertices are in {name!r}")
        for array in both:
            rows = _rows(held, array, count)
            taken = split[rows][split[rows] >= 0]
            if len(taken):
                raise ValueError(f"{array} shares {len(taken)} vertices with {taken_from[int(taken.flat[0])]}")
            split[rows] = code
            taken_from[code] = array
    return split


def _named_splits(held: Mapping[str, npt.NDArray[np.generic]], count: int) -> npt.NDArray[np.int8]:
    """Return the splits of an array with the name or the number of a split for each vertex."""
    given = held["split"]
    if both := [name for name in _SPLIT_ARRAYS if name in held]:
        raise ValueError(f"split and {both[0]} both say which vertices are in a split")
    if given.shape != (count,) or given.dtype.kind not in "iufSU":
        raise ValueError(f"split is of type {given.dtype} and shape {given.shape}, not {count} names of splits")
    texts = np.char.decode(given.astype(np.bytes_), "utf-8", "replace") if given.dtype.kind == "S" else given
    codes = codes_of(texts)
    if (codes == UNKNOWN).any():
        raise ValueError(
            f"split holds {texts[codes == UNKNOWN][0].item()!r}; a split is one of {', '.join(map(repr, SPLITS))}, or '' for "
            "none; 0, 1 and 2 stand for them, and -1 for none"
        )
    return codes


def _rows(held: Mapping[str, npt.NDArray[np.generic]], name: str, count: int) -> npt.NDArray[np.int64]:
    """Return the vertices of a split: those that an array lists, or those for which a mask is true.

    An array as long as the vertices with nothing but 0 and 1 is a mask, whatever its name and type.
    """
    rows = held[name]
    numbers = len(rows) == count > 2 and rows.dtype.kind in "iuf" and bool(np.isin(rows, (0, 1)).all())
    if rows.dtype.kind == "b" or numbers or name.endswith("_mask"):
        if rows.shape != (count,) or (rows.dtype.kind != "b" and not np.isin(rows, (0, 1)).all()):
            raise ValueError(f"{name} is of type {rows.dtype} and shape {rows.shape}, not {count} times true or false")
        return np.flatnonzero(rows)
    found = _whole(held, name)
    if found.min(initial=0) < 0:
        raise ValueError(f"{name} holds {found.min()}, and vertices are numbered from 0")
    if found.max(initial=0) >= count > 0:
        raise ValueError(f"{name} holds {found.max()}, and there are {count} vertices, numbered from 0")
    return found


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
    if "x_shape" not in held:
        return np.zeros((count, 0), dtype=np.float32)
    shape = tuple(int(size) for size in _whole(held, "x_shape"))
    if len(shape) != 2 or shape[0] != count:  # checked before the memory is allocated
        raise ValueError(f"{count} vertices, but features of shape {shape}")
    dense = np.zeros(shape, dtype=np.float32)
    rows, columns = np.repeat(np.arange(count), np.diff(held["x_indptr"])), held["x_indices"]
    if columns.min(initial=0) < 0:
        raise ValueError(f"x_indices holds {columns.min()}, and columns are numbered from 0")
    dense[rows, columns] = _real(held, "x_data")
    return dense


def write_directory(directory: Path, graph: GraphArrays, overwrite: bool, links: EdgeColumns | None = None) -> None:
    """Write a graph in memory as two Parquet files.

    Args:
        directory: the directory.
        graph: the graph.
        overwrite: if True, a graph that is there is replaced.
        links: the edges with their splits and relations; None: they have none (default: None).

    Raises:
        GraphError: something is at the place already, and `overwrite` is False; or the place is a file.
    """
    from pyarrow import parquet  # here, as in `open_table`

    make_room(directory, overwrite)
    directory.mkdir(parents=True, exist_ok=True)
    rows = max(1, GROUP_NUMBERS // max(1, graph.features.shape[1]))
    vertices = vertex_tables(graph, split_names=True)
    if not graph.features.shape[1]:
        vertices = vertices.drop_columns(["features"])
    parquet.write_table(vertices, directory / VERTICES, row_group_size=rows)
    edges = edge_table(graph, keep_id_type=True) if links is None else link_table(links)
    kept = edges.drop_columns(["weight"]) if links is None and graph.weight is None else edges
    parquet.write_table(kept, directory / EDGES)


def make_room(directory: Path, overwrite: bool, names: tuple[str, ...] = (VERTICES, EDGES)) -> None:
    """Remove the graph in a directory, if the user allows it.

    Args:
        directory: the directory.
        overwrite: if True, the user allows it.
        names: the names of what makes up a graph there.

    Raises:
        GraphError: a graph is there, and `overwrite` is False; or the place is a file, or has a saved model.
    """
    require_no_model(directory)
    there = [directory / name for name in names if (directory / name).exists()]
    if there and not overwrite:
        raise GraphError(f"{directory} has a graph already. Name another place, or pass overwrite=True to replace it.")
    for place in there:
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()


def require_no_model(directory: Path) -> None:
    """Check that neither a file nor a saved model lies where a graph is to be saved.

    Raises:
        GraphError: a file or a model is there.
    """
    if directory.exists() and not directory.is_dir():
        raise GraphError(f"{directory} is a file, and a graph is saved as a directory. Name another place.")
    if (directory / SAVED_MODEL).exists():
        raise GraphError(f"{directory} has a saved model, and a graph needs a folder of its own. Name another place.")


def has_graph(directory: Path) -> bool:
    """Return True if a graph was saved in a directory."""
    return any((directory / name).exists() for name in (VERTICES, EDGES))
