"""The end of a run: its result as a `Run`, and its measurements for the cost model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch

from lotan.graph.graph import Graph
from lotan.links.decoders import Decoder, OwnDecoder
from lotan.planning.cost_cache import PastRun, remember_run
from lotan.planning.job import Job
from lotan.planning.learned import ids_by_type
from lotan.results.graph_fit import edges_of
from lotan.results.links import TrainedDecoder
from lotan.results.report import WARM_UP, epoch_seconds, make_report
from lotan.results.run import Run
from lotan.results.trained_model import TrainedModel
from lotan.settings.config import TrainerConfig
from lotan.settings.tasks import LinkPrediction
from lotan.training.learner import Learner


def finished(
    learner: Learner,
    graph: Graph,
    setup_seconds: float,
    peak_memory: Mapping[str, int],
    bytes_moved: Mapping[str, int],
    alone: bool = False,
    batches: Mapping[str, Any] | None = None,
) -> Run:
    """Return the run of a learner whose model holds its best weights.

    Args:
        learner: A learner that has been evaluated at least once.
        graph: The graph as the user gave it, even if it was trained from another place.
        setup_seconds: Seconds before the first epoch.
        peak_memory: Peak bytes of memory by kind of process, see `lotan.memory.watch`.
        bytes_moved: Bytes by way of transport, see `lotan.engines.base.Engine.bytes_moved`.
        alone: True if the measurements are those of this model alone. Measurements of a batch are not compared with the
            estimates for one model.
        batches: The figures of the preparation of mini-batches, see `lotan.batches.schedule.Prepared`; None: a full batch.
    """
    job, config, best = learner.job, learner.config, learner.best
    estimates = {
        "estimated_peak_bytes": job.peak_bytes(config),
        "estimated_epoch_seconds": job.epoch(config).seconds
        if job.planned.options.seconds is None
        else job.training_seconds,
        "estimated_evaluation_seconds": job.evaluation_seconds,
    }
    report = make_report(
        job=job,
        seed=config.seed,
        epochs=learner.state.history,
        best_epoch=best["epoch"],
        metrics=best["metrics"],
        setup_seconds=setup_seconds,
        estimates=estimates if alone else None,
        peak_memory=peak_memory,
        bytes_moved=bytes_moved,
        batches=batches,
        changes=learner.state.changes,
    )
    trained = trained_model(job, learner.weights, config)
    return Run(learner.state.history, best["metrics"], best["epoch"], report, trained, graph, config)


def trained_model(job: Job, weights: Mapping[str, torch.Tensor], config: TrainerConfig) -> TrainedModel:
    """Return the model of a job as data.

    Args:
        job: The job.
        weights: The parameters and buffers by name, which are copied.
        config: The settings of the run.
    """
    # rows in files are shared with the model: nobody writes to them, and they may not fit in memory
    in_parts = job.in_parts
    shared = () if in_parts is None else in_parts.learned
    copied = {name: tensor if name in shared else tensor.clone() for name, tensor in weights.items()}
    ids = ids_by_type(job.graph, job.evaluate) if job.evaluate.learned else None
    decoder = None if job.decoder is None else _trained_decoder(job.decoder, job, config)
    classes = job.graph.labels.classes
    loss = job.loss if not job.loss.further else replace(job.loss, form=None, further=())  # it reads what is left out
    given = classes, edges_of(job.graph), ids, decoder, job.graph.feature_columns
    return TrainedModel(job.evaluate.alone(), loss, copied, *given)


def _trained_decoder(decoder: Decoder, job: Job, config: TrainerConfig) -> TrainedDecoder:
    assert isinstance(config.task, LinkPrediction)
    names = () if job.linked is None else job.linked.links.names
    names = names if job.stored is None else job.stored.summary.names
    own = deepcopy(decoder).requires_grad_(False).eval() if isinstance(decoder, OwnDecoder) else None
    task = config.task
    return TrainedDecoder(task.decoder_name, job.loss.outputs, names, task.shares, task.seed, own)


def remember_epochs(job: Job, config: TrainerConfig, epochs: Sequence[Mapping[str, Any]]) -> None:
    """Record the measured and the estimated seconds of a run's epochs, which correct the estimates of later runs."""
    if len(epochs) > WARM_UP:
        estimated = job.epoch(config).groups
        remember_run(job.engine.name, PastRun(estimated, epoch_seconds(epochs)))
