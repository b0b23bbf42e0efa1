"""The command `lotan explain`."""

from __future__ import annotations

import argparse
import shlex
from contextlib import ExitStack
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

from lotan.cli.graph_options import add_graph_options, open_graph
from lotan.cli.options import (
    add_epochs,
    add_eval_every,
    add_link_options,
    add_model_options,
    add_optimizer,
    add_plan_options,
    add_regime_options,
    add_task,
    number,
    plan_settings,
    task_of,
)
from lotan.cli.outputs import check_file
from lotan.errors import ConfigurationError
from lotan.files import write_atomically
from planner.explain.formats import FORMATS, STAGES

if TYPE_CHECKING:
    from lotan.training.trainer import Trainer

PAGE = "plan.html"  # the default file of an HTML page


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a training run that its plan depends on, and those for the output."""
    add_graph_options(parser, ("--table-format",))  # --format is that of the output
    _add_run_options(parser)
    group = parser.add_argument_group("output")
    group.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="text; json: the same as data; mermaid: a flowchart that GitHub and wikis draw;\n"
        "html: a page with pictures in one file (default: text)",
    )
    stages = group.add_mutually_exclusive_group()
    stages.add_argument(
        "--stage",
        choices=STAGES,
        help="show one stage of the plan (default: text shows the rules that fired and an epoch in brief, other formats\n"
        "all stages; with --alternatives text shows none)",
    )
    stages.add_argument(
        "--verbose",
        dest="stage",
        action="store_const",
        const="all",
        help="show the whole plan: operator graphs, every rule with its reason, every pass with its operators",
    )
    group.add_argument(
        "--out", metavar="FILE", help=f"write the plan to FILE (default: standard output; for html {PAGE})"
    )
    group.add_argument(
        "--diff",
        metavar="OPTIONS",
        help="show the plan beside the one with these further options of model, training, plan and engine:\n"
        '--diff="--disable push_down", --diff="--model gat --heads 4" (default: none)',
    )
    group.add_argument(
        "--analyze",
        metavar="N",
        type=number(int, 1),
        nargs="?",
        const=True,
        help="run N epochs, and show the measured cost of passes and steps beside the estimates, in text, json or html. With\n"
        "mini-batches, a copy of the model trains for N epochs after one that does not count, and the measures of an epoch\n"
        "are shown in text or json (default: do not run; without a number: 3)",
    )
    group.add_argument(
        "--alternatives",
        action="store_true",
        help="list the plans of all engines, and those without one rule, by estimated seconds and with their names for --plan",
    )


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that a plan depends on, except for the graph."""
    add_model_options(parser)
    group = parser.add_argument_group("training", "the options on which the plan and its engine depend")
    add_epochs(group, 200)
    add_task(group)
    add_regime_options(group)
    add_optimizer(group)
    add_eval_every(group)
    group.add_argument(
        "--storage-dir",
        metavar="DIR",
        help="folder that `lotan train` would have for the partitions of --order; its disk is measured, and nothing stays there\n"
        "(default: a temporary one)",
    )
    add_link_options(parser)
    add_plan_options(parser)


def run(options: argparse.Namespace) -> int:
    """Print the plan, or write it to a file."""
    out = PAGE if options.out is None and options.format == "html" else options.out
    check_file("--out", out)
    if options.diff is not None and (options.analyze or options.alternatives):
        raise ConfigurationError("--analyze and --alternatives describe one plan, and --diff shows two: leave it out")
    other = _with_options(options, options.diff) if options.diff is not None else None
    with ExitStack() as stack:
        trainer = _trainer(options, stack)
        if other is None:
            shown = trainer.explain(options.format, options.stage, options.analyze or False, options.alternatives)
        else:
            view = trainer.plan.diff(_trainer(other, stack).plan, ("as given", options.diff or "the same"))
            shown = view.explain(options.format, options.stage or "all")
    if out is None:
        print(shown)
        return 0
    _write(Path(out), shown + "\n")
    print(f"the plan is in {out}")
    return 0


def _write(place: Path, shown: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(place, lambda stream: stream.write(shown.encode()))


def _with_options(given: argparse.Namespace, words: str) -> argparse.Namespace:
    """Return the given options with further options after them."""
    usage = '%(prog)s="OPTIONS", with options of model, training, plan and engine'
    parser = argparse.ArgumentParser(prog="lotan explain --diff", usage=usage, add_help=False)
    _add_run_options(parser)
    try:
        return parser.parse_args(shlex.split(words), namespace=copy(given))
    except ValueError as error:
        raise ConfigurationError(f"--diff {words}: {error}; write the options as in a shell") from error


def _trainer(options: argparse.Namespace, stack: ExitStack) -> Trainer:
    from lotan.cli.models import model_for, needs_of
    from lotan.engines.opening import check_engine, placed
    from lotan.settings.config import make_config
    from lotan.settings.optimizers import plain_optimizer
    from lotan.training.trainer import Trainer

    settings = plan_settings(options) | {"epochs": options.epochs, "eval_every": options.eval_every}
    settings |= {"task": task_of(options), "storage_dir": options.storage_dir}
    settings["optimizer"] = plain_optimizer(options.optimizer, options.lr, options.weight_decay)
    config = make_config(settings)
    if options.analyze:
        check_engine(config)
    given = open_graph(options, config, stack)
    graph = stack.enter_context(placed(given, config, needs_of(options, given, config)))
    model = model_for(options, graph)
    return Trainer(model, graph, **settings)
