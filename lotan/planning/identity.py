"""The identity of a run, by which a checkpoint is known to belong to it."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from lotan.graph.fingerprint import fingerprint
from lotan.links.pairs import SCORES
from lotan.planning.job import Job
from lotan.settings.config import TrainerConfig
from lotan.settings.named_calls import words_of
from planner.loss import LossForm
from planner.spec import Spec


def identity(job: Job, config: TrainerConfig) -> dict[str, str]:
    """Return what identifies a run. A checkpoint resumes only if all of it is the same.

    The whole graph is read once. The number of epochs is not included, since more may be added. Workers and addresses
    are not included either, since they change no number.
    """
    same = (
        "optimizer",
        "eval_every",
        "monitor",
        "patience",
        "seed",
        "partitions",
        "chunk_rows",
        "rgb",
        "propagate",
    )
    settings = {name: repr(getattr(config, name)) for name in same}
    # Settings that an earlier version did not have are left out where they are not used.
    if config.lr_scheduler is not None:
        settings["lr_scheduler"] = words_of(config.lr_scheduler)
    if config.clip_grad_norm is not None:
        settings["clip_grad_norm"] = repr(config.clip_grad_norm)
    if job.loss.thresholds is not None:
        settings["threshold"] = repr(job.loss.thresholds)
    if job.batch is not None:
        settings["regime"] = repr(config.regime)
        settings["order of vertices in a batch"] = f"{job.batch.plan.levels} levels"
        settings["chosen by cost for a batch"] = ", ".join(job.batch.choices)
    if config.tables is not None and config.asynchrony == "plain":
        settings["asynchrony"] = config.asynchrony
    if job.scores != SCORES:
        settings["scores at one time"] = f"{job.scores}, for the memory limit"
    if job.linked is not None:
        settings["links"] = f"{config.task!r} on {job.linked.links.digest}"
    if job.stored is not None:
        settings["links"] = f"{config.task!r} on {job.stored.summary.training:,} links {job.stored.summary.digest}"
        settings["storage"] = str(job.stored.division)
        if job.stored.features is not None:
            settings["features"] = job.stored.features.digest
    if job.stored_vertices is not None:
        settings["storage"] = str(job.stored_vertices.division)
    if config.penalty is not None:
        settings["penalty"] = words_of(config.penalty)
    if job.loss.form is not None:
        settings["loss"] = _digest_of(job.loss.form)
    if job.loss.shown is not None:
        settings["label_rate"] = repr(job.loss.shown)
    if job.rows_in_spark:
        settings["learned rows"] = "in Spark"  # whose last bits may differ from those of torch
    if job.partitions is not None:
        settings["partitions"] = f"at least {job.partitions}, for the memory limit"
    return {
        **settings,
        "engine": job.engine.name,
        "plan": config.plan,
        "disable": ", ".join(sorted(config.disable)),
        "chosen by cost": ", ".join(job.planned.choices),
        "order of vertices": f"{job.plan.levels} levels from {job.plan.targets}",  # sums follow this order
        "task": job.loss.task,
        # Not the given value: a tensor prints rounded, and a list differs from a tuple.
        "class_weights": repr(job.loss.class_weights),
        "model": _digest(job.train) + _digest(job.evaluate),
        "graph": repr((job.statistics, job.graph.labels)),
        "contents of the graph": fingerprint(job.graph),
    }


def _digest_of(form: LossForm) -> str:
    """Return the words for a named loss, and a short digest of what a traced one computes."""
    calls = tuple(replace(call, where="") for call in form.calls)
    return f"traced {hashlib.sha256(repr(calls).encode()).hexdigest()[:16]}" if calls else str(form)


def _digest(spec: Spec) -> str:
    """Return a short digest of what a model computes, independent of line numbers in the user's files."""
    calls = tuple(replace(call, where="") for call in spec.calls)
    return hashlib.sha256(repr(replace(spec, calls=calls)).encode()).hexdigest()[:16]
