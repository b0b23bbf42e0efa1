"""The command `lotan partition`."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from lotan.cli.graph_options import add_graph_options, open_graph
from lotan.cli.options import number


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the graph, its division and the folder."""
    add_graph_options(parser)
    group = parser.add_argument_group("partitions")
    group.add_argument("--out", required=True, metavar="DIR", help="folder to write to, and value for --storage-dir")
    group.add_argument(
        "--partitions",
        type=number(int, 1),
        default=16,
        metavar="N",
        help="number of partitions of the vertices, as in --order 'comet(partitions=N, ...)' (default: 16)",
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
        help="shares of the links for validation and test, drawn by a hash, if edges have no column split (default: none)",
    )
    group.add_argument(
        "--link-seed", type=number(int, 0, 2**63), default=0, metavar="N", help="seed of that hash (default: 0)"
    )


def run(options: argparse.Namespace) -> int:
    """Write the partitions, or find them whole, and print their sizes."""
    from lotan.errors import ConfigurationError
    from lotan.settings.config import make_config
    from lotan.settings.tasks import LinkPrediction
    from lotan.storage.folder import claimed_storage
    from lotan.storage.partitioned_graph import LinkReader, open_partitioned

    fractions = None
    if options.link_fractions is not None:
        try:
            fractions = tuple(float(share) for share in options.link_fractions.split(","))
        except ValueError:
            raise ConfigurationError(
                f"--link-fractions {options.link_fractions}: expected two shares, such as 0.05,0.1"
            ) from None
    task = LinkPrediction(fractions=fractions, seed=options.link_seed)
    with ExitStack() as opened:
        reader = LinkReader(open_graph(options, make_config({"engine": "local"}), opened), task)
        summary = reader.summary()
        if options.partitions > summary.vertices:
            raise ConfigurationError(
                f"--partitions is {options.partitions:,}, and the graph has {summary.vertices:,} vertices; give at most as many"
            )
        folder = opened.enter_context(claimed_storage(Path(options.out).expanduser()))
        found, written = open_partitioned(folder, reader, summary, options.partitions, options.sampling_seed)
    counts = [found.size((a, b)) for a in range(options.partitions) for b in range(options.partitions)]
    said = "written to" if written else "already whole in"
    print(
        f"{options.partitions} partitions of {found.placement.capacity:,} vertices at most, {len(counts)} buckets of "
        f"{min(counts):,} to {max(counts):,} links, {said} {options.out}: {summary.training:,} training links, "
        f"{summary.validation:,} of validation, {summary.test:,} of test, {len(summary.names):,} relations"
    )
    return 0
