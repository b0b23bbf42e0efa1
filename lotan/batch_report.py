"""The report of a model batch, as plain data for JSON; and its plan in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lotan.job import Job
from lotan.report import cost_figures, job_figures, plan_figures, versions
from planner.batch import Batch
from planner.cost import epoch_seconds
from planner.explain import duration


def batch_report(
    job: Job,
    plans: Sequence[Mapping[str, Any]],
    members: Sequence[Mapping[str, Any]],
    setup_seconds: float,
    peak_memory: Mapping[str, int],
    bytes_moved: Mapping[str, int],
) -> dict[str, Any]:
    """What was run and measured. Seconds are wall time, sizes are bytes.

    Args:
        job: of one of the models.
        plans: of what trained together, see `plan_data`.
        members: what became of each.
        setup_seconds: beside epochs.
        peak_memory: see `lotan.memory_watch`.
        bytes_moved: see `lotan.engines.base.Engine.bytes_moved`.
    """
    return {
        **job_figures(job),
        "batches": list(plans),
        "members": list(members),
        **cost_figures(setup_seconds, peak_memory, bytes_moved),
        "versions": versions(),
    }


def plan_data(batch: Batch, numbers: Sequence[int], job: Job) -> dict[str, Any]:
    """Of models that train together.

    Args:
        batch: their plan.
        numbers: by which they are called, in its order.
        job: of one of them.
    """
    return {
        "models": list(numbers),
        "side_by_side": [[numbers[model] for model in stack.models] for stack in batch.stacks],
        **plan_figures(batch.plan),
        "estimated_epoch_seconds": estimated_seconds(batch, job),
    }


def estimated_seconds(batch: Batch, job: Job) -> float:
    """Of a training pass of the batch."""
    return epoch_seconds(batch.plan, job.statistics, job.planned.options.pricing).seconds


def plan_lines(batch: Batch, numbers: Sequence[int], job: Job) -> list[str]:
    """The steps of an epoch of models that train together."""
    several = f", {len(batch.stacks)} plans side by side" if len(batch.stacks) > 1 else ", all by one plan"
    count = f"{len(numbers)} models{several}" if len(numbers) > 1 else "1 model"
    lines = [f"batch of {count}: {duration(estimated_seconds(batch, job))} estimated for an epoch"]
    if batch.plan.prepare:
        lines += ["  once, for all", *(f"    {step.label}" for step in batch.plan.prepare)]
    for stack in batch.stacks:
        called = ", ".join(str(numbers[model]) for model in stack.models)
        lines.append(f"  models {called}, as one" if len(stack.models) > 1 else f"  model {called}")
        lines += [f"    {step.label}" for step in stack.train]
    return lines
