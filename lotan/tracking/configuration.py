"""A run's configuration as plain data for JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lotan.results.report import graph_figures
from lotan.settings.losses import loss_words
from lotan.settings.named_calls import words_of
from lotan.settings.optimizers import Optimizer
from lotan.settings.regimes import FullBatch, MiniBatch
from lotan.settings.tasks import LinkPrediction
from lotan.tracking.tracker import Start

if TYPE_CHECKING:
    from lotan.planning.job import Job
    from lotan.settings.config import TrainerConfig
    from lotan.training.learner import Learner


def configuration(model: torch.nn.Module, job: Job, config: TrainerConfig) -> dict[str, Any]:
    """Return a run's settings and descriptions of its model, graph and engine, as plain data."""
    kind = type(model)
    return {
        "settings": plain_settings(config),
        "engine": job.engine.name,
        "task": job.loss.task,
        "model": {
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "printed": repr(model),
            "weights": {name: list(tensor.shape) for name, tensor in model.state_dict().items()},
        },
        "graph": {**graph_figures(job), "origin": job.graph.origin},
    }


def start_of(learner: Learner, planned: bool = True) -> Start:
    """Return the data that trackers take when a run begins, or goes on from a checkpoint.

    Args:
        learner: the learner, before its first epoch since then.
        planned: if True, the plan is part of the data (default: True).
    """
    told = learner.state.epoch - (learner.owes_metrics and not learner.done)  # an epoch is recorded with its metrics
    job = learner.job
    return Start(
        configuration=configuration(learner.model, job, learner.config),
        planned=job.shown if planned else None,
        history=learner.state.history[:told],
        weights=learner.weights,
    )


def plain_settings(config: TrainerConfig) -> dict[str, Any]:
    """Return the settings of a run as plain data for JSON."""
    settings = {item.name: _plain(getattr(config, item.name)) for item in dataclasses.fields(config)}
    return settings | {"loss": None if config.loss is None else loss_words(config.loss)}


def _plain(value: Any) -> Any:
    match value:
        case Optimizer():
            arguments = {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
            return {"name": type(value).__name__, **arguments}
        case FullBatch():
            return "full batch"
        case LinkPrediction():
            given = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
            return {"name": "link", **{name: _plain(one) for name, one in given.items()}, "decoder": value.decoder_name}
        case MiniBatch():
            return {
                "name": "mini-batch",
                **{item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)},
            }
        case None | bool() | int() | float() | str():
            return value
        case Path():
            return str(value)
        case _ if callable(value):
            return words_of(value)
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item.item() if hasattr(item, "item") else item) for item in value]
