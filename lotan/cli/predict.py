"""The command `lotan predict`."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from lotan.cli.graph_options import add_graph_options, open_graph
from lotan.cli.options import add_plan_options, number, plan_settings
from lotan.cli.outputs import check_directory, check_file
from lotan.errors import ConfigurationError

if TYPE_CHECKING:
    from lotan.graph.graph import Graph
    from lotan.results.trained_model import TrainedModel
    from lotan.settings.config import TrainerConfig

OTHER_FORMATS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".npz", ".npy", ".xlsx")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the graph, the saved model and the place of the predictions."""
    add_graph_options(parser)
    parser.add_argument(
        "--model-dir",
        required=True,
        metavar="DIR",
        help="directory that `lotan train --save` wrote; its columns of features are the default of --features, if there\n"
        "were several",
    )
    parser.add_argument(
        "--out",
        default="predictions.parquet",
        metavar="PATH",
        help="Parquet file with the columns id, prediction and, except for regression, probability;\n"
        "a folder of part files from an engine on Spark (default: predictions.parquet)",
    )
    parser.add_argument(
        "--pairs",
        metavar="FILE",
        help="for a model of links, the file of pairs to score: Parquet, CSV, JSON or ORC with the columns src, dst and, if\n"
        "links had relations, relation; they are written with a column score",
    )
    parser.add_argument(
        "--rank",
        type=number(int, 1),
        metavar="K",
        help="do not score pairs, but find the K best destinations for each row of --pairs, which has no dst then",
    )
    parser.add_argument(
        "--exclude-known", action="store_true", help="with --rank, leave out destinations that the graph has a link to"
    )
    parser.add_argument(
        "--unseen",
        choices=("error", "mean"),
        default="error",
        help="for a model with learned rows, what vertices get that the graph of training did not have: an error, or the\n"
        "mean of all rows (default: error)",
    )
    add_plan_options(parser)


def run(options: argparse.Namespace) -> int:
    """Predict every vertex, or score pairs, and write the predictions."""
    from lotan.results.trained_model import load
    from lotan.settings.config import make_config

    check_out(options.out)
    settings = plan_settings(options)
    model = load(options.model_dir)
    _check_pairs(options, of_links=model.decoder is not None)
    if options.features is None and len(model.features) > 1:
        options.features = ",".join(model.features)
    with ExitStack() as opened:
        graph = open_graph(options, make_config(settings), opened)
        if model.decoder is not None:
            _predict_links(options, model, graph, make_config(settings))
            return 0
        model.write_predictions(graph, options.out, unseen=options.unseen, **settings)
    print(f"predictions written to {options.out}")
    return 0


def _check_pairs(options: argparse.Namespace, of_links: bool) -> None:
    """Check that there are pairs for a model of links, and for no other.

    Raises:
        ConfigurationError: If an option is missing, or is of no use.
    """
    if of_links and options.pairs is None:
        raise ConfigurationError(
            f"the model in {options.model_dir} was trained on links: give the pairs to score by --pairs FILE, or the queries "
            "to answer by --pairs FILE --rank K"
        )
    for name in ("pairs", "rank", "exclude_known"):
        if not of_links and getattr(options, name):
            raise ConfigurationError(
                f"--{name.replace('_', '-')} is for a model of links, and that in {options.model_dir} was trained on labels"
            )
    if options.exclude_known and options.rank is None:
        raise ConfigurationError("--exclude-known leaves out answers of --rank: give --rank K too")


def _predict_links(options: argparse.Namespace, model: TrainedModel, graph: Graph, config: TrainerConfig) -> None:
    from lotan.results.link_files import write_ranks, write_scores

    if options.rank is None:
        write_scores(model, graph, options.pairs, options.out, config, options.unseen)
    else:
        write_ranks(
            model, graph, options.pairs, options.out, options.rank, config, options.exclude_known, options.unseen
        )
    print(f"{'scores' if options.rank is None else 'the best destinations'} written to {options.out}")


def check_out(out: str) -> None:
    """Check the place of the predictions. A directory may exist there only if it has part files of an earlier run.

    Raises:
        ConfigurationError: If the place cannot be written to, or if its name is that of another format.
    """
    if out.lower().endswith(OTHER_FORMATS):
        raise ConfigurationError(
            f"--out {out}: predictions are written as Parquet; name a file such as predictions.parquet"
        )
    if (Path(out) / "_SUCCESS").exists():
        check_directory("--out", out)
    else:
        check_file("--out", out)
