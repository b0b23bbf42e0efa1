"""The command `lotan tune`."""

from __future__ import annotations

import argparse
import shlex
from contextlib import ExitStack
from typing import TYPE_CHECKING

from lotan.cli.graph_options import add_graph_options, graph_words, open_graph
from lotan.cli.options import (
    add_epochs,
    add_evaluation_options,
    add_link_options,
    add_loss_options,
    add_plan_options,
    add_regime_options,
    loss_settings,
    number,
    plan_settings,
)
from lotan.cli.outputs import add_result_options, check_outputs
from lotan.tuning.search_names import SEARCHES

if TYPE_CHECKING:
    from lotan.tuning.result import Tuned


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the graph, the grid, the search, and the plan of a training run."""
    add_graph_options(parser)
    _add_search_options(parser)
    group = parser.add_argument_group("training")
    add_epochs(group, None)
    add_regime_options(group)
    add_loss_options(group)
    add_evaluation_options(group)
    add_link_options(parser)
    add_plan_options(parser)
    add_result_options(
        parser.add_argument_group("results"),
        report="write every model's history as JSON to FILE, such as tune.json",
        html="write a page with pictures to FILE, such as tune.html",
        save_best="write the best model to DIR, for `lotan predict --model-dir`",
        checkpoint_dir="write each model's checkpoints to a folder in DIR (default: none)",
        checkpoint_batches="write checkpoints after every N mini-batches of an epoch too (default: after epochs alone)",
        resume="continue from the checkpoints in --checkpoint-dir, if there are any",
        log_dir="record each model's run in a folder such as DIR/model-0000, as `lotan train --log-dir` does, but without the\n"
        "plan, which models share (default: none)",
        mlflow="log each model as a run in MLflow (needs lotan[mlflow])",
        quiet="print nothing",
    )


def _add_search_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("search")
    group.add_argument(
        "--grid",
        required=True,
        metavar="FILE",
        help="TOML file of the values to try, such as:\n"
        "  seed = [0, 1]\n"
        "  [model]\n"
        '  kind = ["gcn", "sage"]\n'
        "  hidden = [16, 64]\n"
        "  [optimizer]\n"
        "  lr = [0.01, 0.001]\n"
        "docs/reference/grid-file.md describes the file; other options have the defaults of `lotan train`",
    )
    group.add_argument(
        "--search",
        choices=SEARCHES,
        default="grid",
        help="grid: all combinations; random: --trials of them; halving: all, or --trials of them, of which the best third\n"
        "continues, repeatedly; optuna: chosen by Optuna, batch by batch (needs lotan[optuna]) (default: grid)",
    )
    group.add_argument(
        "--trials",
        type=number(int, 1),
        metavar="N",
        help="combinations to draw, not for grid (default: 20; halving: all combinations, if the file has no ranges)",
    )
    group.add_argument(
        "--eta", type=number(int, 2), default=3, metavar="N", help="halving: one model in N continues (default: 3)"
    )
    group.add_argument(
        "--max-models-per-batch",
        type=_models,
        metavar="auto|N",
        help="models that train together; auto: as many as fit into memory (default: auto)",
    )


def _models(text: str) -> int | None:
    return None if text == "auto" else int(number(int, 1)(text))


_models.__name__ = "auto or whole number"  # argparse prints it: "invalid auto or whole number value: 'x'"


def run(options: argparse.Namespace) -> int:
    """Search, write the results to the given places, and print the models, best first."""
    from lotan.settings.config import make_config
    from lotan.tuning.tuner import tune

    check_outputs(options, files=("report", "html"), directories=("save_best", "log_dir"))
    settings = plan_settings(options)
    with ExitStack() as opened:
        tuned = tune(
            open_graph(options, make_config(settings), opened),
            options.grid,
            search=options.search,
            trials=options.trials,
            eta=options.eta,
            epochs=options.epochs,
            patience=options.patience,
            eval_every=options.eval_every,
            monitor=options.monitor,
            **loss_settings(options),
            max_models=options.max_models_per_batch,
            checkpoint_dir=options.checkpoint_dir,
            checkpoint_batches=options.checkpoint_batches,
            resume=options.resume,
            log_dir=options.log_dir,
            mlflow=options.mlflow,
            progress=not options.quiet,
            **settings,
        )
    _write(tuned, options)
    return 0


def _write(tuned: Tuned, options: argparse.Namespace) -> None:
    """Write results in the order of what a full disk would cost most. The last steps fail if all models diverged."""
    if not options.quiet:
        print("\n".join(tuned.lines()))
    if options.report:
        tuned.write_report(options.report)
    if options.html:
        tuned.write_html(options.html)
    if options.log_dir:
        _write_commands(tuned, options)
    words = tuned.best.train_options
    if options.save_best:
        tuned.save_best(options.save_best, overwrite=True)
    if words is not None and not options.quiet:
        print(f"\nthe best one alone: lotan train {shlex.join([*graph_words(options), *words])}", flush=True)


def _write_commands(tuned: Tuned, options: argparse.Namespace) -> None:
    """Write the command into the folder of each model that `lotan train` has options for, for `lotan rerun`."""
    from lotan.batch.members import folder_of
    from lotan.cli import train
    from lotan.cli.commands import write_command

    parser = argparse.ArgumentParser()
    train.add_options(parser)
    for trial in tuned.trials:
        if trial.train_options is not None:
            words = [*graph_words(options), *trial.train_options]
            write_command(parser.parse_args(words), folder_of(options.log_dir, trial.number))
