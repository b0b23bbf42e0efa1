"""`lotan explain`."""

from __future__ import annotations

import argparse

from lotan.cli.options import add_graph_options, add_model_options, add_plan_options, plan_settings, read_graph
from planner.explain import FORMATS


def add_options(parser: argparse.ArgumentParser) -> None:
    """A training run's graph, model and plan."""
    add_graph_options(parser)
    add_model_options(parser)
    add_plan_options(parser)
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="of the output; json: the same as data; mermaid: a flowchart, as GitHub and wikis draw it (default: text)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the plan."""
    from lotan.cli.models import make_model, needs_of
    from lotan.engines.opening import placed
    from lotan.settings import make_config
    from lotan.trainer import Trainer

    settings = plan_settings(options)
    given, config = read_graph(options), make_config(settings)
    with placed(given, config, needs_of(options, given, config)) as graph:
        model = make_model(options, graph.statistics.width, graph.labels.outputs)
        print(Trainer(model, graph, **settings).explain(format=options.format))
    return 0
