"""Edges that need not fit in memory: they are read part by part, and sorted in files, those of some vertices at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lotan.graph.arrays import EdgeColumns, Ids, Positions, finder, some_of, sort_edges
from lotan.graph.column_names import ColumnNames
from lotan.graph.columns import edge_columns
from lotan.graph.faults import EXAMPLES, dangling_edges, example_row, ragged, table_changed
from lotan.graph.feature_parts import table_parts
from lotan.graph.places import Place
from lotan.graph.sorted_edges import runs_of_ends
from lotan.memory.mapped import MappedMemory, give_back
from planner.chunks import EDGES_READ

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

PART_EDGES = 1 << 17
"""The edges that are in memory at one time while a graph is read: some 30 MB with all copies, ids that are texts included."""

COLUMNS = ("src", "dst", "weight", "edge_attr", "edge_type")

Parts = Callable[[], Iterator[EdgeColumns]]
"""A function that yields all edges, some at a time, in the same order at each call. There is one part at least."""


def edges_in_parts(place: Place, table: Dataset, names: ColumnNames, ids: Ids, rows: int = PART_EDGES) -> Parts:
    """Return a function that reads edges part by part.

    Args:
        place: the place of the edges.
        table: the table there, which is open.
        names: the columns' names, as the table has them.
        ids: the vertices' ids, whose type the edges' ends must have.
        rows: the edges of a part, at most (default: `PART_EDGES`).

    Returns:
        The function. It raises a GraphError if a file is truncated, or a column has a bad value. Bad values are
        counted in the part in which they were found.
    """

    def parts() -> Iterator[EdgeColumns]:
        width = None
        for part in table_parts(place, table, names.of_edges(), rows):
            found = edge_columns(part, names, ids)
            if found.edge_attr is not None:
                width = found.edge_attr.shape[1] if width is None else width
                if found.edge_attr.shape[1] != width:
                    raise _differ(names, found, width)
            yield found
        if not table.count_rows():
            yield edge_columns(
                pa.schema([table.schema.field(name) for name in names.of_edges()]).empty_table(), names, ids
            )

    return parts


def _differ(names: ColumnNames, edges: EdgeColumns, before: int) -> Exception:
    """Build the error for a part whose edges have more or fewer attributes than those before it."""
    assert edges.edge_attr is not None  # the caller has asked
    here = edges.edge_attr.shape[1]
    example = example_row(f"{edges.src[0]} -> {edges.dst[0]}", f"{here} numbers, and {before} in edges before it")
    return ragged(names.edge_feature_columns[0], len(edges.src), max(here, before), example, "edges")


def with_rows(parts: Parts, ids: Ids) -> Parts:
    """Return the same edges, with the rows of the vertices as ends.

    Args:
        parts: the edges, with ids as ends.
        ids: the ids of the vertices, ascending.

    Returns:
        The function. It raises a GraphError if an end is no vertex.
    """
    find = finder(ids)

    def found() -> Iterator[EdgeColumns]:
        bad = 0
        examples: list[tuple[object, object]] = []
        for part in parts():
            src, dst = find(part.src), find(part.dst)
            dangling = np.flatnonzero((src < 0) | (dst < 0))
            bad += len(dangling)
            examples += [(part.src[row], part.dst[row]) for row in dangling[: EXAMPLES - len(examples)]]
            if not bad:
                yield replace(part, src=src, dst=dst)
        if bad:
            raise dangling_edges(bad, examples)

    return found


def sort_in_files(parts: Parts, vertices: int, mapped: MappedMemory, undirected: bool = False) -> EdgeColumns:
    """Return edges in files, sorted as those of `lotan.graph.GraphArrays` are.

    They are read to count those that end at each vertex, and to put those of some vertices side by side, which are then
    sorted. To add reverses, they are read once more. `EDGES_READ` of them are sorted at one time, or those of one vertex, if
    it has more.

    Args:
        parts: the edges, with rows as ends.
        vertices: the number of vertices.
        mapped: the files.
        undirected: if True, missing reverses of edges are added (default: False).

    Raises:
        EngineError: the disk is full.
    """
    into, out = np.zeros(vertices, dtype=np.int64), np.zeros(vertices, dtype=np.int64)
    for part in parts():
        np.add.at(into, part.dst, 1)
        if undirected:
            np.add.at(out, part.src, 1)
    runs = runs_of_ends(into + out, EDGES_READ)
    given = _Spread(parts, runs, into, mapped)
    reverses = _Spread(_turned(parts), runs, out, mapped) if undirected else None
    most = given.count * (2 if undirected else 1)
    made, count = {name: mapped.array(most, column) for name, column in given.columns.items()}, 0
    for run in range(len(runs)):
        columns = given.of(run)
        if reverses is not None:
            columns = _with_missing(columns, reverses.of(run), vertices)
        columns = _sorted(columns, vertices)
        some = slice(count, count + len(columns["src"]))
        for name, column in columns.items():
            made[name][some] = column
            give_back(made[name])
        count = some.stop
    src, dst, weight, attributes, types = (some_of(made.get(name), slice(count)) for name in COLUMNS)
    assert src is not None
    assert dst is not None
    return EdgeColumns(src, dst, weight, attributes, types, given.flat)


def _turned(parts: Parts) -> Parts:
    return lambda: (replace(part, src=part.dst, dst=part.src) for part in parts())


class _Spread:
    """Edges in files, those of each run of destinations side by side.

    Args:
        parts: the edges.
        runs: the runs of all vertices.
        counts: the number of edges that end at each vertex [vertices].
        mapped: the files.

    Raises:
        GraphError: the edges are others than those that were counted.
    """

    def __init__(self, parts: Parts, runs: Sequence[range], counts: Positions, mapped: MappedMemory) -> None:
        numbers = np.repeat(
            np.arange(len(runs), dtype=np.int32), [len(run) for run in runs]
        )  # of the run of each vertex
        sizes = np.add.reduceat(counts, [run.start for run in runs])
        self._ends = np.concatenate([np.zeros(1, dtype=np.int64), sizes.cumsum()])
        self.columns: dict[str, npt.NDArray[Any]] = {}
        self.flat = False
        free = self._ends[:-1].copy()  # the place of the next edge of each run
        for part in parts():
            columns = {name: column for name in COLUMNS if (column := getattr(part, name)) is not None}
            self.columns = self.columns or {name: mapped.array(self.count, one) for name, one in columns.items()}
            self.flat = part.flat
            of = numbers[part.dst]
            order = np.argsort(of, kind="stable")
            of = of[order]
            places = free[of] + np.arange(len(of)) - np.searchsorted(of, of)
            free += np.bincount(of, minlength=len(free))
            if (free > self._ends[1:]).any():
                raise table_changed()
            for name, column in columns.items():
                self.columns[name][places] = column[order]
                give_back(self.columns[name])
        if not np.array_equal(free, self._ends[1:]):
            raise table_changed()

    @property
    def count(self) -> int:
        """The number of edges."""
        return int(self._ends[-1])

    def of(self, run: int) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of the edges of a run, in the order in which they were given, in memory."""
        some = slice(int(self._ends[run]), int(self._ends[run + 1]))
        found = {name: column[some].copy() for name, column in self.columns.items()}
        for column in self.columns.values():
            give_back(column)
        return found


def _with_missing(
    given: dict[str, npt.NDArray[Any]], reverses: dict[str, npt.NDArray[Any]], vertices: int
) -> dict[str, npt.NDArray[Any]]:
    """Return edges, and those of their reverses that are not among them, as `lotan.graph.arrays.add_reverses` adds them."""
    keys, of_reverses = (columns["dst"] * vertices + columns["src"] for columns in (given, reverses))
    missing: Positions = np.flatnonzero(~np.isin(of_reverses, keys))
    return {name: np.concatenate([column, reverses[name][missing]]) for name, column in given.items()}


def _sorted(columns: dict[str, npt.NDArray[Any]], vertices: int) -> dict[str, npt.NDArray[Any]]:
    src, dst, weight, attributes, types = map(columns.get, COLUMNS)
    assert src is not None
    assert dst is not None
    found = sort_edges(EdgeColumns(src, dst, weight, attributes, types), vertices)
    return {name: getattr(found, name) for name in columns}
