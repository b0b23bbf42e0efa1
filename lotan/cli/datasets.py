"""The command `lotan datasets`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from lotan.cli.options import number

if TYPE_CHECKING:
    from lotan.datasets.planted import PlantedGraph

MOST = 1 << 40  # larger numbers of vertices, edges or features are a slip of the keyboard


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the action `generate` with its options. Listing graphs needs no options."""
    actions = parser.add_subparsers(dest="action", metavar="generate")
    # set after the line above, which would make it part of generate's usage
    parser.usage = "%(prog)s [-h] [generate ...]"
    summary = "write a random graph with power-law degrees, splits, and classes that features and edges follow"
    generate = actions.add_parser(
        "generate",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        formatter_class=argparse.RawTextHelpFormatter,
    )
    generate.add_argument(
        "place",
        metavar="NAME|PATH",
        help="place of the graph, and value for --graph;\na NAME without a slash goes to $LOTAN_DATA, if that is set",
    )
    for name, of, default, least in (
        ("vertices", "vertices", 169_343, 1),
        ("edges", "directed edges", 2_400_000, 0),
        ("features", "features of a vertex", 128, 1),
        ("classes", "classes", 40, 1),
    ):
        text = f"number of {of} (default: {default:,})"
        generate.add_argument(f"--{name}", type=number(int, least, MOST), default=default, metavar="N", help=text)
    generate.add_argument("--seed", type=number(int, 0, 2**63), default=0, metavar="N", help="random seed (default: 0)")
    generate.add_argument(
        "--format",
        choices=("parquet", "npz"),
        help="parquet: a directory, written in bounded memory; npz: a file, held in memory\n"
        "(default: npz if the PATH ends in .npz, else parquet)",
    )


def run(options: argparse.Namespace) -> int:
    """List the graphs that --graph takes by name, or generate one."""
    if options.action == "generate":
        return _generate(options)
    from lotan.datasets import available

    for dataset in available():
        print(f"{dataset.name:<16}{dataset.size:<20}{dataset.place}")
    return 0


def _generate(options: argparse.Namespace) -> int:
    from lotan.datasets import write_npz, write_parquet
    from lotan.datasets.planted import PlantedGraph

    graph = PlantedGraph(options.vertices, options.edges, options.features, options.classes, options.seed)
    form = options.format or ("npz" if options.place.endswith(".npz") else "parquet")
    place = _place(options.place, form)
    (write_npz if form == "npz" else write_parquet)(graph, place)
    print(f"{_words(graph)} written to {place}")
    return 0


def _place(given: str, form: str) -> Path:
    from lotan.graph.files import data_directories

    place = Path(given if form == "parquet" or given.endswith(".npz") else f"{given}.npz")
    named = data_directories()[:-1]  # $LOTAN_DATA, without the folder beside the checkout
    return named[0] / place if named and "/" not in given else place


def _words(graph: PlantedGraph) -> str:
    shape = f"{graph.vertices:,} vertices, {graph.edges:,} edges, {graph.width:,} features, {graph.classes:,} classes"
    return f"{shape}, seed {graph.seed}"
