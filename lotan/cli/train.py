"""The command `lotan train`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from lotan.cli.collecting import rare_collections
from lotan.cli.graph_options import add_graph_options, graph_said, open_graph
from lotan.cli.options import (
    add_run_options,
    loss_settings,
    plan_settings,
    task_of,
)
from lotan.cli.outputs import add_result_options, check_outputs

if TYPE_CHECKING:
    from lotan.graph.graph import Graph
    from lotan.results.run import Run
    from lotan.training.trainer import Trainer


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of a training run."""
    add_graph_options(parser)
    add_run_options(parser)
    add_result_options(
        parser.add_argument_group("results"),
        checkpoint_dir="write a checkpoint to DIR after every epoch (default: none)",
        checkpoint_batches="write a checkpoint after every N mini-batches of an epoch too (default: after epochs alone)",
        storage_dir="folder for the partitions of --order, which stays and is used again (default: in\n"
        "--checkpoint-dir, or else a temporary one)",
        resume="continue from the checkpoint in --checkpoint-dir, if there is one",
        resume_with="continue with another patience, or other numbers of the optimizer, such as lr=0.001,patience=20;\n"
        "all other options have to be those that the run began with",
        log_dir="folder for all records of the run: epochs as JSON lines and TensorBoard events during training, plan,\n"
        "configuration, environment, report and model; `lotan rerun DIR` repeats the run (default: none)",
        mlflow="log settings, figures, plan and model to MLflow at $MLFLOW_TRACKING_URI (needs lotan[mlflow])",
        report="write settings and measurements as JSON to FILE, such as report.json",
        save="write the model to DIR, for `lotan predict --model-dir`",
        quiet="do not print what will run, progress and metrics",
    )


def run(options: argparse.Namespace) -> int:
    """Print what will run, train, print the metrics, and write the results to the given places."""
    train(options)
    return 0


def train(options: argparse.Namespace) -> Run:
    """Do the work of `run`, and return the finished run."""
    with ExitStack() as opened:
        with rare_collections():
            trainer = _ready(options, opened)
        finished = trainer.fit()
    # results are written in the order of what a full disk would cost most
    if not options.quiet:
        print_metrics(finished.best_epoch, finished.metrics)
    if options.save:
        finished.save(options.save, overwrite=True)
    if options.report:
        from lotan.results.report import write_report

        write_report(options.report, finished.report)
    written = [str(place) for place in (options.save, options.report, options.log_dir) if place]
    if written and not options.quiet:
        print(f"written: {', '.join(written)}")
    return finished


def _ready(options: argparse.Namespace, opened: ExitStack) -> Trainer:
    """Return the Trainer with its plan made and described. Its graph stays in place while `opened` is open."""
    from lotan.cli.commands import write_command
    from lotan.cli.models import needs_of
    from lotan.engines.opening import check_engine, placed
    from lotan.settings.config import make_config
    from lotan.tracking import open_tracker

    check_outputs(options, files=("report",), directories=("save", "log_dir"))
    # finds faults now that would otherwise show up later
    open_tracker(options.log_dir, options.mlflow, options.resume).close()
    config = make_config(plan_settings(options) | {"task": task_of(options)})
    check_engine(config)
    if config.engine in ("blocks", "rows") and not options.quiet:
        print("Spark and the workers are started, which takes some seconds", file=sys.stderr, flush=True)
    given = open_graph(options, config, opened)
    graph = opened.enter_context(placed(given, config, needs_of(options, given, config)))
    trainer = make_trainer(options, graph)
    if not options.quiet:
        print_start(options, trainer)
    if options.log_dir:
        write_command(options, options.log_dir)
    return trainer


def make_trainer(options: argparse.Namespace, graph: Graph) -> Trainer:
    """Return the Trainer that the options describe."""
    from lotan.cli.models import model_for
    from lotan.settings.optimizers import plain_optimizer
    from lotan.training.trainer import Trainer

    return Trainer(
        model_for(options, graph),
        graph,
        optimizer=plain_optimizer(options.optimizer, options.lr, options.weight_decay),
        lr_scheduler=options.lr_scheduler,
        clip_grad_norm=options.clip_grad_norm,
        epochs=options.epochs,
        patience=options.patience,
        eval_every=options.eval_every,
        monitor=options.monitor,
        **loss_settings(options),
        checkpoint_dir=options.checkpoint_dir,
        checkpoint_batches=options.checkpoint_batches,
        storage_dir=options.storage_dir,
        resume=options.resume,
        resume_with=options.resume_with,
        log_dir=options.log_dir,
        mlflow=options.mlflow,
        progress=not options.quiet,
        **plan_settings(options),
    )


def print_start(options: argparse.Namespace, trainer: Trainer) -> None:
    """Print model and graph, engine, mini-batches if there are any, rules, and where results go, each in a line.

    `fit` adds a line with the estimates.
    """
    from planner.explain.brief import rules_line

    planned, graph = trainer.job.shown, trainer.job.statistics
    in_parts = trainer.job.in_parts
    divided = "" if in_parts is None else f"; {in_parts.division}"
    count = sum(parameter.numel() for parameter in trainer.model.parameters())
    reason = planned.options.engine_reason
    places = [str(place) for place in (options.save, options.report, options.checkpoint_dir, options.log_dir) if place]
    places += ["MLflow"] * bool(options.mlflow)
    lines = {
        "model": f"{options.model} with {count:,} parameters, on {graph_said(options)}: "
        f"{graph.vertices:,} vertices, {graph.edges:,} edges, {graph.width:,} features; weights: {planned.options.weights}",
        "engine": planned.options.traits.name + (f" ({reason})" if reason else ""),
        **(
            {}
            if planned.options.sampling is None
            else {"regime": f"mini-batches of {planned.options.sampling}{divided}"}
        ),
        "rules": rules_line(planned),
        "results": ", ".join(places)
        or "printed here (--save keeps the model, --report the figures, --log-dir everything)",
    }
    for name, said in lines.items():
        print(f"{name}: {said}", flush=True)


def print_metrics(epoch: int, metrics: Mapping[str, Mapping[str, float]]) -> None:
    """Print the metrics of the best epoch, one line per split."""
    print(f"best epoch {epoch}")
    for split, figures in metrics.items():
        print(f"  {split:<6}" + "  ".join(f"{name} {value:.4f}" for name, value in figures.items()), flush=True)
