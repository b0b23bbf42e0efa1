"""Folders with a table for each type of vertices and each relation.

Their names are such as `vertices/author.parquet` and `edges/author__writes__paper.parquet`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotan.errors import GraphError
from lotan.files import expanded
from lotan.graph.file_tables import open_table, read_rows
from lotan.graph.places import ARROW_FORMATS, FORMATS, Place, is_uri
from planner.vertex_types import Relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERTICES, EDGES = "vertices", "edges"
BETWEEN = "__"
"""The sign between the parts of a relation, in the names of files."""
FORM = f"SOURCE{BETWEEN}NAME{BETWEEN}DESTINATION"


def is_typed(path: str | Path) -> bool:
    """Return True for a folder of tables by types of vertices."""
    if is_uri(path) or not str(path):
        return False
    folder = expanded(path)
    return os.path.isdir(folder / VERTICES) and any(_relation(place) for place in _entries(folder / EDGES))


def tables_of(
    path: str | Path, format: str | None, spark: SparkSession | None
) -> tuple[dict[str, Any], dict[Relation, Any]]:
    """Return the tables of a folder, by type of vertices and by relation: read by Arrow, or by Spark if there is a session.

    Raises:
        GraphError: there is no such folder, a name says no relation, or a table cannot be read.
    """
    folder = expanded(path)
    if not is_typed(folder):
        raise GraphError(
            f"{folder} has no tables by type; expected {VERTICES}/TYPE.parquet and {EDGES}/{FORM}.parquet."
        )
    vertices = {_name(place): _table(place, format, spark) for place in _entries(folder / VERTICES)}
    edges: dict[Relation, Any] = {}
    for place in _entries(folder / EDGES):
        relation = _relation(place)
        if relation is None:
            raise GraphError(f"{place}: the name says no relation; expected {FORM}, such as author__writes__paper.")
        edges[relation] = _table(place, format, spark)
    return vertices, edges


def file_name(relation: Relation) -> str:
    """Return the name of a relation's table, without the format.

    >>> file_name(("author", "writes", "paper"))
    'author__writes__paper'
    """
    return BETWEEN.join(relation)


def check_names(types: Iterable[str], relations: Iterable[Relation]) -> None:
    """Check that the names of files can hold the names of types and relations, so that a reader finds the same again.

    Raises:
        GraphError: they cannot.
    """
    relations = list(relations)
    for name in [*types, *(relation[1] for relation in relations)]:
        if "/" in name or name.startswith((".", "_")):
            raise GraphError(
                f"The name {name!r} cannot be that of a file; expected one without '/' that begins with neither '.' nor '_'."
            )
    for relation in relations:
        if _relation(Path(f"{file_name(relation)}.parquet")) != relation:
            raise GraphError(
                f"The relation {relation!r} cannot be the name of a file; expected names without {BETWEEN!r} and no empty one."
            )


def _entries(folder: Path) -> list[Path]:
    """Return the tables in a folder: files, and folders of part files, without hidden ones."""
    if not folder.is_dir():
        return []
    return sorted(place for place in folder.iterdir() if not place.name.startswith((".", "_")))


def _name(place: Path) -> str:
    return place.stem if place.suffix[1:] in FORMATS else place.name


def _relation(place: Path) -> Relation | None:
    parts = _name(place).split(BETWEEN)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(parts) else None


def _table(path: Path, format: str | None, spark: SparkSession | None) -> Any:
    ending = path.suffix[1:]
    place = Place("path", str(path), format or (ending if ending in FORMATS else "parquet"))
    if spark is not None or place.format not in ARROW_FORMATS:
        if spark is None:
            raise GraphError(f"{path} is of format {place.format}, which needs Spark; pass a session: spark=session.")
        from lotan.graph import spark_tables

        return spark_tables.read(spark, place)
    table = open_table(place)
    return read_rows(place, table, table.schema.names)
