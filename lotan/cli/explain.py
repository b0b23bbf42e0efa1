"""`lotan explain`."""

from __future__ import annotations

import argparse

from lotan.cli.options import add_graph_options, add_model_options, add_plan_options, make_trainer, read_graph


def add_options(parser: argparse.ArgumentParser) -> None:
    """A training run's graph, model and plan."""
    add_graph_options(parser)
    add_model_options(parser)
    add_plan_options(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of the output (default: text)")


def run(options: argparse.Namespace) -> int:
    """Print the plan."""
    from lotan.cli.models import Recipe

    graph = read_graph(options)
    model = Recipe.from_options(options, graph.width, graph.outputs).make(options.seed)
    with make_trainer(options, graph, model) as trainer:
        print(trainer.explain(format=options.format))
    return 0
