"""The command `lotan partition`."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from lotan.cli.graph_options import add_graph_options, open_graph
from lotan.cli.options import number
from planner.orders.division import OrderName
from planner.orders.vertex_division import VertexOrderName

if TYPE_CHECKING:
    from lotan.graph.graph import Graph
    from lotan.storage.partitioned_graph import PartitionedGraph

LINK_ORDERS, VERTEX_ORDERS = get_args(OrderName), get_args(VertexOrderName)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the graph, its division and the folder."""
    add_graph_options(parser)
    group = parser.add_argument_group("partitions")
    group.add_argument("--out", required=True, metavar="DIR", help="folder to write to, and value for --storage-dir")
    group.add_argument(
        "--order",
        choices=(*LINK_ORDERS, *VERTEX_ORDERS),
        default="comet",
        help="order of batches that will read them, as in training: comet and beta store the links of a link task,\n"
        "cached_nodes and each_once the edges and features of a graph with labels (default: comet)",
    )
    group.add_argument(
        "--partitions",
        type=number(int, 1),
        default=16,
        metavar="N",
        help="number of partitions of the vertices. Training reads them if its order has the same number, such as --order\n"
        "'comet(partitions=16, buffer=4, groups=8)' (default: 16)",
    )
    group.add_argument(
        "--sampling-seed",
        type=number(int, 0, 2**63),
        default=0,
        metavar="N",
        help="seed of the partition of each vertex, the same as in training (default: 0)",
    )
    group.add_argument(
        "--link-fractions",
        metavar="VAL,TEST",
        help="for comet and beta: shares of the links for validation and test, drawn by a hash, if edges have no column split\n"
        "(default: none)",
    )
    group.add_argument(
        "--link-seed",
        type=number(int, 0, 2**63),
        default=0,
        metavar="N",
        help="for comet and beta: seed of that hash (default: 0)",
    )


def run(options: argparse.Namespace) -> int:
    """Write the partitions, or find them whole, and print their sizes."""
    from lotan.settings.config import make_config

    with ExitStack() as opened:
        graph = open_graph(options, make_config({"engine": "local"}), opened)
        print(_links(options, graph) if options.order in LINK_ORDERS else _vertices(options, graph))
    return 0


def _links(options: argparse.Namespace, graph: Graph) -> str:
    """Write the links of a link task, and return their sizes in words."""
    from lotan.errors import ConfigurationError
    from lotan.settings.tasks import LinkPrediction
    from lotan.storage.edge_readers import LinkReader
    from lotan.storage.folder import claimed_storage
    from lotan.storage.partitioned_graph import open_partitioned

    fractions = None
    if options.link_fractions is not None:
        try:
            fractions = tuple(float(share) for share in options.link_fractions.split(","))
        except ValueError:
            raise ConfigurationError(
                f"--link-fractions {options.link_fractions}: expected two shares, such as 0.05,0.1"
            ) from None
    reader = LinkReader(graph, LinkPrediction(fractions=fractions, seed=options.link_seed))
    summary = reader.summary()
    _check_count(options, summary.vertices)
    with claimed_storage(Path(options.out).expanduser(), only_reads=True) as folder:
        found, written = open_partitioned(folder, reader, summary, options.partitions, options.sampling_seed)
    sizes = (
        f"{_sizes(options, found, written, 'links')}: {summary.training:,} training links, {summary.validation:,} of validation, "
        f"{summary.test:,} of test, {len(summary.names):,} relations"
    )
    return "\n".join(filter(None, (sizes, found.mended)))


def _vertices(options: argparse.Namespace, graph: Graph) -> str:
    """Write the edges and features of a graph with labels, and return their sizes in words."""
    from lotan.errors import ConfigurationError
    from lotan.storage.folder import claimed_with_room
    from lotan.storage.vertex_partitions import check_storable, disk_bytes, open_vertex_partitions

    if options.link_fractions is not None:
        raise ConfigurationError(
            f"--link-fractions is about link tasks, and --order {options.order} stores a graph with labels; leave one of both out"
        )
    graph = graph.in_files() if graph.reads_in_parts else graph
    check_storable(graph, f"--order {options.order}")
    _check_count(options, len(graph.ids))
    given = options.order, options.partitions, options.sampling_seed
    out, size = Path(options.out).expanduser(), disk_bytes(graph.arrays())
    with claimed_with_room(out, size, "the edges and the features", only_reads=True) as folder:
        found, features, written = open_vertex_partitions(folder, graph, *given)
    (width,) = features.widths
    sizes = f"{_sizes(options, found, written, 'edges')}, and {width:,} features of {len(graph.ids):,} vertices"
    return "\n".join(filter(None, (sizes, found.mended, features.mended)))


def _check_count(options: argparse.Namespace, vertices: int) -> None:
    from lotan.errors import ConfigurationError

    if options.partitions > vertices:
        raise ConfigurationError(
            f"--partitions is {options.partitions:,}, and the graph has {vertices:,} vertices; give at most as many"
        )


def _sizes(options: argparse.Namespace, found: PartitionedGraph, written: bool, edges: str) -> str:
    counts = [found.size((a, b)) for a in range(options.partitions) for b in range(options.partitions)]
    return (
        f"{options.partitions} partitions of {found.placement.capacity:,} vertices at most, {len(counts)} buckets of "
        f"{min(counts):,} to {max(counts):,} {edges}, {'written to' if written else 'already whole in'} {options.out}"
    )
