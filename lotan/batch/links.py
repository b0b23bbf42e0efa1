"""Link tasks of several models: which of them share negatives and samples, and how many fit into memory together.

The models train in step. Each batch of links is drawn once, and then each model takes its step on it by a plan of its
own. So models with other widths, decoders or losses share the draws too.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from lotan.batches.links import LinkBatches
from lotan.engines.choice import MEMORY_SHARE
from lotan.memory.free import free_memory
from lotan.memory.limit import MemoryLimit
from lotan.planning.job import Job
from lotan.results.report import plan_figures
from lotan.settings.config import TrainerConfig
from lotan.settings.tasks import LinkPrediction
from planner.explain.sizes import duration
from planner.regime import hops_of_plan
from planner.shares import DRIVER_BYTES

COPIES = 4
"""The copies of its weights that a model in training holds: the weights, the best ones, and two moments of Adam."""


@dataclass(frozen=True)
class LinkJob:
    """The job of a member whose task is a link task, with its settings."""

    job: Job
    config: TrainerConfig

    @property
    def task(self) -> LinkPrediction:
        """The link task."""
        assert isinstance(self.config.task, LinkPrediction)
        return self.config.task

    @property
    def draws(self) -> Hashable:
        """The settings that models must have in common to share negatives and samples."""
        task = replace(self.task, decoder="dot", loss="softmax")  # neither changes a draw
        both = self.job.both
        depth = None if self.job.batch is None else hops_of_plan(self.job.batch.plan)
        return repr(task), self.config.regime, depth, both

    @property
    def held_bytes(self) -> int:
        """The bytes that the model holds in memory while others take their steps."""
        assert self.job.decoder is not None
        own = sum(prod(parameter.shape) for parameter in self.job.train.parameters)
        return 4 * COPIES * (own + sum(parameter.numel() for parameter in self.job.decoder.parameters()))


def shared_batches(jobs: Sequence[LinkJob], epochs: int) -> LinkBatches:
    """Return the mini-batches that models share.

    Args:
        jobs: The jobs of the models, which share draws and train on mini-batches.
        epochs: The last epoch for which batches are prepared.
    """
    first = jobs[0]
    assert first.job.linked is not None
    plans = [one.job.batch.plan for one in jobs if one.job.batch is not None]
    return LinkBatches(first.job.linked, plans, first.config, epochs, first.job.both)


def divide_links(jobs: Sequence[LinkJob], numbers: Sequence[int], most: int | None) -> list[list[int]]:
    """Divide models into groups that share draws and fit into memory, in the order given.

    Args:
        jobs: The jobs of the models.
        numbers: The numbers of the models, in the same order.
        most: The largest number of models in a group; None: no limit but memory.
    """
    if not jobs[0].job.traits.in_process:
        return [[number] for number in numbers]  # a worker has the plan and the decoder of one model
    found: list[list[int]] = []
    for draws in dict.fromkeys(one.draws for one in jobs):
        group: list[int] = []
        room = 0
        for number, one in zip(numbers, jobs, strict=True):
            if one.draws != draws:
                continue
            if group and (one.held_bytes > room or len(group) == most):
                found.append(group)
                group = []
            room = room - one.held_bytes if group else _room(one)
            group.append(number)
        found.append(group)
    return found


def _room(first: LinkJob) -> int:
    """Return the bytes that are left for the weights of further models, beside the first one."""
    limit, needs = MemoryLimit.of(first.config).bytes, first.job.needs(first.config)
    if limit is not None:
        return limit - (needs.in_memory or needs.least)
    return int(MEMORY_SHARE * free_memory()) - (needs.peak - DRIVER_BYTES)


def link_plan_data(jobs: Sequence[LinkJob], numbers: Sequence[int]) -> dict[str, Any]:
    """Return the plans of models that train in step, as plain data. The figures of the plan are those of the first."""
    return {
        "models": list(numbers),
        "side_by_side": [[number] for number in numbers],
        **plan_figures(jobs[0].job.shown.plan),
        "estimated_epoch_seconds": sum(one.job.training_seconds for one in jobs),
    }


def link_plan_lines(jobs: Sequence[LinkJob], numbers: Sequence[int]) -> list[str]:
    """Return the steps of an epoch of models that train in step, as lines of text."""
    training, evaluation = (
        sum(getattr(one.job, name) for one in jobs) for name in ("training_seconds", "evaluation_seconds")
    )
    count = f"{len(jobs)} models in step" if len(jobs) > 1 else "1 model"
    drawn = "negatives" if jobs[0].job.batch is None else "links, negatives and edges of a batch"
    seconds = (
        f"{duration(training)} estimated for an epoch's training, {duration(evaluation)} for the evaluation of all"
    )
    lines = [f"batch of {count}: {seconds}", f"  once, for all: {drawn}"]
    for number, one in zip(numbers, jobs, strict=True):
        lines += [f"  model {number}", *(f"    {step.label}" for step in one.job.shown.plan.train)]
    return lines
