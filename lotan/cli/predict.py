"""The command `lotan predict`."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from lotan.cli.graph_options import add_graph_options, open_graph
from lotan.cli.options import add_plan_options, plan_settings
from lotan.cli.outputs import check_directory, check_file
from lotan.errors import ConfigurationError

OTHER_FORMATS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".npz", ".npy", ".xlsx")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the graph, the saved model and the place of the predictions."""
    add_graph_options(parser)
    parser.add_argument("--model-dir", required=True, metavar="DIR", help="directory that `lotan train --save` wrote")
    parser.add_argument(
        "--out",
        default="predictions.parquet",
        metavar="PATH",
        help="Parquet file with the columns id, prediction and, except for regression, probability;\n"
        "a folder of part files from an engine on Spark (default: predictions.parquet)",
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
    """Predict every vertex, and write the predictions."""
    from lotan.results.trained_model import load
    from lotan.settings.config import make_config

    check_out(options.out)
    settings = plan_settings(options)
    model = load(options.model_dir)
    with ExitStack() as opened:
        graph = open_graph(options, make_config(settings), opened)
        model.write_predictions(graph, options.out, unseen=options.unseen, **settings)
    print(f"predictions written to {options.out}")
    return 0


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
