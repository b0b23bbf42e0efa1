"""`lotan predict`."""

from __future__ import annotations

import argparse

from lotan.cli.options import add_graph_options, add_plan_options, make_trainer, read_graph


def add_options(parser: argparse.ArgumentParser) -> None:
    """A graph, a saved model, and where the predictions go."""
    add_graph_options(parser)
    parser.add_argument("--model-dir", required=True, metavar="DIR", help="what `lotan train --save` wrote")
    parser.add_argument(
        "--out",
        default="predictions.parquet",
        metavar="FILE",
        help="a Parquet file with the columns id, prediction, probability (default: predictions.parquet)",
    )
    add_plan_options(parser)


def run(options: argparse.Namespace) -> int:
    """Predict every vertex."""
    from lotan.cli.models import load_model

    graph = read_graph(options)
    with make_trainer(options, graph, load_model(options.model_dir)) as trainer:
        predictions = trainer.predict()
    predictions.to_parquet(options.out, index=False)
    print(f"{len(predictions)} predictions in {options.out}")
    return 0
