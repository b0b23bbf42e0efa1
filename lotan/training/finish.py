"""What a trained model is handed back as, and what its run teaches about costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lotan.graph import Graph
from lotan.memory.limit import MemoryLimit
from lotan.planning.cost_cache import PastRun, remember_run
from lotan.planning.job import Job
from lotan.results.report import WARM_UP, epoch_seconds, make_report
from lotan.results.run import Run
from lotan.results.trained_model import TrainedModel
from lotan.settings.config import TrainerConfig
from lotan.training.learner import Learner


def finished(
    learner: Learner,
    graph: Graph,
    setup_seconds: float,
    peak_memory: Mapping[str, int],
    bytes_moved: Mapping[str, int],
    alone: bool = False,
) -> Run:
    """The run of a learner whose model holds its best weights.

    Args:
        learner: has been evaluated at least once.
        graph: as it was given, wherever it was trained on.
        setup_seconds: before its first epoch.
        peak_memory: see `lotan.memory.watch`.
        bytes_moved: see `lotan.engines.base.Engine.bytes_moved`.
        alone: whether what was measured is this model's; else it is that of a batch, and stands beside no estimate of this
            model.
    """
    job, config, best = learner.job, learner.config, learner.best
    estimates = {
        "estimated_peak_bytes": MemoryLimit.of(config).peak(job.needs(config)),
        "estimated_epoch_seconds": job.epoch(config).seconds,
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
    )
    trained = TrainedModel(job.evaluate, job.loss, {name: t.clone() for name, t in learner.weights.items()})
    return Run(learner.state.history, best["metrics"], best["epoch"], report, trained, graph, config)


def remember_epochs(job: Job, config: TrainerConfig, epochs: Sequence[Mapping[str, Any]]) -> None:
    """Keep what the epochs of a run took beside what was estimated, for the estimates of the next ones."""
    if len(epochs) > WARM_UP:
        estimated = job.epoch(config).groups
        remember_run(job.engine.name, PastRun(estimated, epoch_seconds(epochs)))
