"""The report of a model batch as plain data for JSON, and its plan in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lotan.planning.job import Job
from lotan.results.report import cost_figures, job_figures, plan_figures, versions
from planner.batch import Batch
from planner.cost.seconds import epoch_seconds
from planner.explain.sizes import duration


def batch_report(
    job: Job,
    plans: Sequence[Mapping[str, Any]],
    members: Sequence[Mapping[str, Any]],
    setup_seconds: float,
    peak_memory: Mapping[str, int],
    bytes_moved: Mapping[str, int],
) -> dict[str, Any]:
    """Return the settings and measurements of a batch. Seconds are wall time, sizes are bytes.

    Args:
        job: The job of one of the models.
        plans: The plan of each group of models that trained together, see `plan_data`.
        members: The result of each member.
        setup_seconds: Seconds spent outside of epochs.
        peak_memory: Peak bytes of memory by kind of process, see `lotan.memory.watch`.
        bytes_moved: Bytes by way of transport, see `lotan.engines.base.Engine.bytes_moved`.
    """
    return {
        **job_figures(job),
        "batches": list(plans),
        "members": list(members),
        **cost_figures(setup_seconds, peak_memory, bytes_moved),
        "versions": versions(),
    }


def plan_data(batch: Batch, numbers: Sequence[int], job: Job) -> dict[str, Any]:
    """Return the plan of models that train together, as plain data.

    Args:
        batch: Their common plan.
        numbers: The members' numbers, in the order of the plan.
        job: The job of one of them.
    """
    return {
        "models": list(numbers),
        "side_by_side": [[numbers[model] for model in stack.models] for stack in batch.stacks],
        **plan_figures(batch.plan),
        "estimated_epoch_seconds": estimated_seconds(batch, job),
    }


def estimated_seconds(batch: Batch, job: Job) -> float:
    """Return the estimated seconds of the training passes of an epoch."""
    shown, sampling = job.shown, job.shown.options.sampling
    passes = 1 if sampling is None else sampling.batches
    return passes * epoch_seconds(batch.plan, shown.statistics, shown.options.pricing).seconds


def plan_lines(batch: Batch, numbers: Sequence[int], job: Job) -> list[str]:
    """Return the steps of an epoch of models that train together, as lines of text."""
    several = f", {len(batch.stacks)} plans side by side" if len(batch.stacks) > 1 else ", all by one plan"
    count = f"{len(numbers)} models{several}" if len(numbers) > 1 else "1 model"
    lines = [f"batch of {count}: {duration(estimated_seconds(batch, job))} estimated for an epoch's training"]
    if batch.if_shared is not None:
        lines.append(
            f"  models share no steps, because an epoch is estimated to take {batch.if_shared:.2f} times as long if they do"
        )
    if batch.plan.prepare:
        lines += ["  once, for all", *(f"    {step.label}" for step in batch.plan.prepare)]
    for stack in batch.stacks:
        called = ", ".join(str(numbers[model]) for model in stack.models)
        lines.append(f"  models {called}, as one" if len(stack.models) > 1 else f"  model {called}")
        lines += [f"    {step.label}" for step in stack.train]
    return lines
