"""The command `lotan rerun`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lotan.cli.outputs import RESULTS, add_result_options


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the folder of the earlier run, and the places of the new results."""
    parser.add_argument(
        "run", metavar="DIR", help="folder that `lotan train --log-dir` wrote, or that of a model of `lotan tune`"
    )
    add_result_options(
        parser,
        log_dir="folder for all records of the new run (default: none)",
        report="write settings and measurements as JSON to FILE",
        save="write the model to DIR, for `lotan predict --model-dir`",
        mlflow="log the new run to MLflow (needs lotan[mlflow])",
        quiet="do not print the plan, progress and metrics",
    )


def run(options: argparse.Namespace) -> int:
    """Repeat the training, and report whether every loss and metric is the same to the last bit."""
    from lotan.cli import train
    from lotan.cli.commands import read_command
    from lotan.results.report import versions
    from lotan.tracking.folder import EPOCHS

    defaults = argparse.ArgumentParser()
    train.add_options(defaults)
    recorded = read_command(options.run, defaults.parse_args(["--graph", ""]))
    results = {name: value for name, value in vars(options).items() if name in RESULTS}
    finished = train.train(argparse.Namespace(**(recorded | results)))
    epochs, environment = Path(options.run) / EPOCHS, Path(options.run) / "environment.json"
    then = [json.loads(line) for line in epochs.read_text().splitlines()] if epochs.exists() else []
    print(compared(then, finished.history))
    if environment.exists() and (
        changed := other_versions(json.loads(environment.read_text())["versions"], versions())
    ):
        print(f"other versions than then: {changed}")
    return 0


def compared(then: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> str:
    """Return the comparison of two histories as a sentence.

    If an epoch of the earlier run has no metrics, for example because a search stopped its model, only the loss is compared.

    >>> compared([{"epoch": 1, "loss": 0.5}], [{"epoch": 1, "loss": 0.5}])
    'the same to the last bit: losses and metrics of 1 epochs'
    >>> compared([{"epoch": 1, "loss": 0.5}], [{"epoch": 1, "loss": 0.25}])
    'not the same: from epoch 1 on; loss 0.5 then, 0.25 now'
    >>> compared([{"epoch": 1, "loss": 0.5}], [{"epoch": 1, "loss": 0.5, "metrics": {}}, {"epoch": 2, "loss": 0.25}])
    'the same to the last bit for 1 epochs; 1 then, 2 now'
    """
    for one, other in zip(then, now, strict=False):
        if one["loss"] != other["loss"] or one.get("metrics", other.get("metrics")) != other.get("metrics"):
            return f"not the same: from epoch {other['epoch']} on; loss {one['loss']!r} then, {other['loss']!r} now"
    if len(then) != len(now):
        return f"the same to the last bit for {min(len(then), len(now))} epochs; {len(then)} then, {len(now)} now"
    return f"the same to the last bit: losses and metrics of {len(now)} epochs"


def other_versions(then: Mapping[str, str | None], now: Mapping[str, str | None]) -> str:
    """Return the packages whose version has changed.

    >>> other_versions({"torch": "2.7", "numpy": "2.4"}, {"torch": "2.8", "numpy": "2.4"})
    'torch 2.7, now 2.8'
    """
    return ", ".join(f"{name} {then[name]}, now {now.get(name)}" for name in then if then[name] != now.get(name))
