"""`lotan train`."""

from __future__ import annotations

import argparse

from lotan.cli.options import (
    add_graph_options,
    add_model_options,
    add_plan_options,
    add_training_options,
    make_trainer,
    read_graph,
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """All of a training run."""
    add_graph_options(parser)
    add_model_options(parser)
    add_training_options(parser)
    add_plan_options(parser)
    group = parser.add_argument_group("results")
    group.add_argument(
        "--checkpoint-dir", metavar="DIR", help="write a checkpoint there after every epoch (default: none)"
    )
    group.add_argument(
        "--resume", action="store_true", help="go on from the checkpoint in --checkpoint-dir, if there is one"
    )
    group.add_argument("--report", metavar="FILE", help="write what was run and measured as JSON, such as report.json")
    group.add_argument("--save", metavar="DIR", help="write the model there, for `lotan predict --model-dir`")
    group.add_argument("--quiet", action="store_true", help="print neither the plan nor progress")


def run(options: argparse.Namespace) -> int:
    """Print the plan, train, print the metrics, write what was asked for."""
    from lotan.cli.models import Recipe, save_model
    from lotan.errors import ConfigurationError
    from lotan.optimizers import optimizer_by_name

    if options.resume and options.checkpoint_dir is None:
        raise ConfigurationError("--resume was given without --checkpoint-dir; name the directory to resume from")
    graph = read_graph(options)
    recipe = Recipe.from_options(options, graph.width, graph.outputs)
    model = recipe.make(options.seed)
    trainer = make_trainer(
        options,
        graph,
        model,
        optimizer=optimizer_by_name(options.optimizer, lr=options.lr, weight_decay=options.weight_decay),
        epochs=options.epochs,
        patience=options.patience,
        eval_every=options.eval_every,
        checkpoint_dir=options.checkpoint_dir,
        resume=options.resume,
        quiet=options.quiet,
    )
    with trainer:
        if not options.quiet:
            print(trainer.explain(), flush=True)
        result = trainer.fit()
    if options.report:
        result.write_report(options.report)
    if options.save:
        save_model(options.save, recipe, model)
    if not options.quiet:
        print_metrics(result.metrics)
    return 0


def print_metrics(metrics: dict[str, dict[str, float]]) -> None:
    """One line a split."""
    for split, figures in metrics.items():
        print(f"{split:<6}" + "  ".join(f"{name} {value:.4f}" for name, value in figures.items()))
