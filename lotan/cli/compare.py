"""The command `lotan compare`."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any

from lotan.cli.graph_options import add_graph_options, open_graph
from lotan.cli.options import (
    add_run_options,
    loss_settings,
    number,
    plan_settings,
)
from lotan.cli.outputs import add_result_options, check_file
from lotan.errors import ConfigurationError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a training run, and those for the target and the output."""
    add_graph_options(parser)
    add_run_options(parser)
    group = parser.add_argument_group("comparison")
    group.add_argument(
        "--target",
        type=float,
        metavar="X",
        help="value of the metric of the validation vertices to reach (default: the best that both reach)",
    )
    group.add_argument(
        "--full-lr",
        type=number(float, 0),
        metavar="X",
        help="learning rate of the full batch, which has one step an epoch (default: --lr, as mini-batches)",
    )
    group.add_argument(
        "--full-epochs",
        type=number(int, 1),
        metavar="N",
        help="epochs of the full batch (default: --epochs, as mini-batches)",
    )
    add_result_options(
        parser.add_argument_group("results"),
        report="write the table and every epoch as JSON to FILE, such as compare.json",
        html="write a page with the table and curves to FILE, such as compare.html",
        quiet="print nothing but the table",
    )


def run(options: argparse.Namespace) -> int:
    """Train the model in full batch and in mini-batches, and print and write how soon each reaches the target."""
    from lotan.cli.models import model_for
    from lotan.settings.config import make_config
    from lotan.settings.optimizers import plain_optimizer
    from lotan.settings.regimes import FullBatch, MiniBatch
    from lotan.tuning.compare import compare

    check_file("--report", options.report)
    check_file("--html", options.html)
    settings = plan_settings(options)
    regime = settings.pop("regime")
    if not isinstance(regime, MiniBatch):
        raise ConfigurationError(
            "compare trains in full batch and in mini-batches: give --batch-size and --fanouts, such as --batch-size 1024 "
            "--fanouts 10,10"
        )

    def optimizer(lr: float) -> Any:
        return plain_optimizer(options.optimizer, lr, options.weight_decay)

    full_lr = options.lr if options.full_lr is None else options.full_lr
    ways = {
        "full batch": {
            "regime": FullBatch(),
            "optimizer": optimizer(full_lr),
            "epochs": options.full_epochs or options.epochs,
        },
        f"mini-batches of {regime}": {"regime": regime, "optimizer": optimizer(options.lr), "epochs": options.epochs},
    }
    with ExitStack() as opened:
        graph = open_graph(options, make_config({**settings, "regime": regime}), opened)
        compared = compare(
            model_for(options, graph),
            graph,
            ways,
            options.target,
            lr_scheduler=options.lr_scheduler,
            clip_grad_norm=options.clip_grad_norm,
            patience=options.patience,
            eval_every=options.eval_every,
            monitor=options.monitor,
            **loss_settings(options),
            progress=not options.quiet,
            **settings,
        )
    print("\n".join(compared.lines()), flush=True)
    if options.report:
        compared.write_report(options.report)
    if options.html:
        compared.write_html(options.html)
    return 0
