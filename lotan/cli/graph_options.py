"""The options that say where a graph is and how its columns are called, and the graph that they describe."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from lotan.errors import ConfigurationError

if TYPE_CHECKING:
    from lotan.graph.graph import Graph
    from lotan.settings.config import TrainerConfig

FORMATS = ("parquet", "csv", "json", "orc", "delta", "iceberg", "hudi", "avro")  # lotan.graph.places has them too
PLACES = ("graph", "vertices", "edges")
COLUMNS = {
    "id": "ids of the vertices (default: id)",
    "features": "features: a column of arrays, several of numbers (a,b,c), or a pattern such as 'f_*' (default: features)",
    "label": "labels (default: label, if it is there)",
    "split": "splits, or three masks (train,val,test) (default: split, if it is there)",
    "vertex_weight": "weights of the vertices in the loss (default: vertex_weight, if it is there)",
    "src": "sources of the edges (default: src, or source)",
    "dst": "destinations of the edges (default: dst, or target)",
    "weight": "weights of the edges (default: weight, if it is there)",
    "edge_features": "attributes of the edges, as --features (default: edge_attr, if it is there)",
    "batch": "groups of the vertices, numbered from 0 (default: none)",
    "edge_type": "types of the edges (default: edge_type, if it is there)",
}
"""The options for names of columns. Each is also an argument of `Graph.read_tables`."""
_SEVERAL = ("features", "split", "edge_features")


def add_graph_options(
    parser: argparse.ArgumentParser, format_options: tuple[str, ...] = ("--format", "--table-format")
) -> None:
    """Add --graph, --vertices and --edges, and the options for reading them.

    Args:
        parser: The parser of a command.
        format_options: The names of the option for the tables' format. A command may have another --format.
    """
    group = parser.add_argument_group("graph")
    places = group.add_mutually_exclusive_group(required=True)
    places.add_argument(
        "--graph",
        metavar="PATH|URI|NAME",
        help="a directory with vertices.parquet and edges.parquet, or its URI; one with vertices/TYPE.parquet and\n"
        "edges/SOURCE__NAME__DESTINATION.parquet; an .npz file; or a name that `lotan datasets` lists",
    )
    places.add_argument(
        "--vertices",
        metavar="PLACE",
        help="the table of vertices: a path, a URI that Spark reads (s3a://, hdfs://, abfss://, dbfs:/), a table of its\n"
        "catalog (db.table), or a query in quotes ('SELECT ... FROM ...'); goes with --edges",
    )
    group.add_argument("--edges", metavar="PLACE", help="the table of edges, as --vertices")
    group.add_argument(
        *format_options,
        dest="table_format",
        choices=FORMATS,
        metavar="FORMAT",
        help=f"format of the tables: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}\n"
        "(default: from the ending of their names, or else parquet)",
    )
    group.add_argument(
        "--task-type",
        metavar="TYPE",
        help="the type of vertices whose labels are learnt, in a directory of several types (default: the one with labels)",
    )
    group.add_argument("--undirected", action="store_true", help="add the reverse of every edge once (default: no)")
    columns = parser.add_argument_group("columns", "the names of columns, for tables")
    for name, said in COLUMNS.items():
        columns.add_argument(f"--{name.replace('_', '-')}", metavar="COLUMN", help=said)


def graph_said(options: argparse.Namespace) -> str:
    """Return the graph's place in words."""
    return str(options.graph or f"{options.vertices} and {options.edges}")


def graph_words(options: argparse.Namespace) -> list[str]:
    """Return the options of a graph as words of a command line."""
    given = {"--table-format": options.table_format, "--task-type": options.task_type}
    for name in (*PLACES, *COLUMNS):
        given[f"--{name.replace('_', '-')}"] = getattr(options, name)
    words = [word for name, value in given.items() if value is not None for word in (name, value)]
    return [*words, *["--undirected"] * options.undirected]


def column_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Return the names of columns that were given, as arguments of `Graph.read`."""
    given = {name: getattr(options, name) for name in COLUMNS if getattr(options, name) is not None}
    return {name: text.split(",") if name in _SEVERAL and "," in text else text for name, text in given.items()}


def open_graph(options: argparse.Namespace, config: TrainerConfig, opened: ExitStack) -> Graph:
    """Return the graph of the options. If Spark must read it, a session is started, or the active one is used.

    Args:
        options: The options of a command.
        config: The settings, with the engine and the master.
        opened: The stack that closes the session.

    Raises:
        ConfigurationError: If --vertices or --edges is missing.
        GraphError: If there is no such graph, or it cannot be read.
    """
    from lotan.graph import sources, typed_folders
    from lotan.graph.graph import Graph

    columns = column_arguments(options)
    if options.graph is not None and typed_folders.is_typed(options.graph):
        types = {} if options.task_type is None else {"task_type": options.task_type}
        return Graph.read(options.graph, options.undirected, options.table_format, **columns, **types)
    if options.task_type is not None:
        raise ConfigurationError("--task-type goes with --graph for a directory of several types of vertices")
    given: dict[str, Any] = {"undirected": options.undirected, "format": options.table_format, **columns}
    if (options.vertices is None) != (options.edges is None):
        raise ConfigurationError("--vertices and --edges go together: give both, or --graph for a directory of both")
    if options.vertices is None:
        tables = sources.places_at(options.graph, options.table_format)
    else:
        tables = sources.places(options.vertices, options.edges, options.table_format)
    if tables is not None and sources.needs_spark(tables, in_process=config.engine == "local"):
        given["spark"] = _session(config, opened)
    if options.vertices is None:
        return Graph.read(options.graph, **given)
    return Graph.read_tables(options.vertices, options.edges, **given)


def _session(config: TrainerConfig, opened: ExitStack) -> Any:
    from lotan.hosts.spark_session import SparkSettings, open_spark
    from lotan.memory.limit import MemoryLimit

    settings = SparkSettings(config.master, MemoryLimit.of(config).heap(None))
    return opened.enter_context(closing(open_spark(settings))).session
