"""The jobs of the members of a model batch, and the plans by which they train together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from typing import Any

from lotan.batch.links import LinkJob, divide_links
from lotan.batch.members import Member, folder_of
from lotan.batch.plan import divide, plan_batch, plan_mini_batch
from lotan.borders import PlanError
from lotan.errors import ConfigurationError, ModelError
from lotan.graph.graph import Graph
from lotan.planning.job import Job
from lotan.planning.links import prepare_links
from lotan.planning.prepare import prepare
from lotan.settings.config import MEMBER_SETTINGS, TrainerConfig
from lotan.settings.tasks import LinkPrediction
from lotan.tracing.signature import takes_labels
from planner.batch import Batch
from planner.footprint import Footprint


class MemberJobs:
    """The job of each member, made when it is first asked for, and the plans of members that train together.

    Args:
        graph: The graph that all members are trained on.
        config: The settings that are common to all members.
        most: The largest number of models that train together; None: as many as fit into memory.
        opened: The stack that closes what jobs have opened.
    """

    def __init__(self, graph: Graph, config: TrainerConfig, most: int | None, opened: ExitStack) -> None:
        self.members: list[Member] = []
        self._graph, self._config, self._most, self._opened = graph, config, most, opened
        self._jobs: dict[int, Job] = {}
        self._plans: dict[tuple[int, ...], Batch] = {}  # by the members that train together

    def __getitem__(self, number: int) -> Job:
        return self._jobs[number]

    @property
    def made(self) -> tuple[Job, ...]:
        """The jobs that were made so far."""
        return tuple(self._jobs.values())

    def name_of(self, number: int) -> str:
        """Return the name of a member to show."""
        return self.members[number].name or f"model {number}"

    def config_of(self, number: int, member: Member | None = None) -> TrainerConfig:
        """Return the settings of a member: those of all, and its own.

        Args:
            number: The number of the member.
            member: The member, if it is not among `members` yet.
        """
        member = self.members[number] if member is None else member
        folders: dict[str, Any] = {
            name: folder_of(folder, number)
            for name in ("checkpoint_dir", "log_dir")
            if (folder := getattr(self._config, name)) is not None
        }
        own = {name: given for name in ("regime", "task") if (given := getattr(member, name)) is not None}
        settings = {name: getattr(member, name) for name in MEMBER_SETTINGS}
        return replace(self._config, **settings, **own, **folders).settled()

    def prepare(self, numbers: Sequence[int]) -> list[Job]:
        """Return the jobs of members. Each job is made once.

        Raises:
            GraphError, ModelError, PlanError: If a model cannot be trained on the graph.
            ConfigurationError: If members cannot train together.
        """
        for number in numbers:
            if number not in self._jobs:
                config = self.config_of(number)
                try:
                    if isinstance(config.task, LinkPrediction):
                        self._jobs[number] = self._prepared_links(number, config.task, config)
                    else:
                        self._jobs[number] = self._prepared(number, config)
                except (ModelError, PlanError) as error:
                    raise type(error)(f"{error} (in {self.name_of(number)})") from error
        return [self._jobs[number] for number in numbers]

    def _prepared(self, number: int, config: TrainerConfig) -> Job:
        """Make the job of a member, on the engine that was chosen for the first member."""
        model, others = self.members[number].model, self.made
        if others:
            engine = others[0].engine.name
            settings: dict[str, Any] = {"engine": engine, "partitions": others[0].partitions or config.partitions}
            settings |= {"router": None, "keys": None} if engine == "local" else {}
            config = replace(config, **settings)
        if others and takes_labels(model) != others[0].train.sees_labels:
            raise ConfigurationError(
                "some members take labels as input, which are one more feature, and others do not; train them in two batches"
            )
        count = min(len(self.members), self._most or len(self.members))
        job = prepare(model, others[0].graph if others else self._graph, config, self._opened, models=count)
        return replace(job, engine=others[0].engine, partitions=others[0].partitions) if others else job

    def _prepared_links(self, number: int, task: LinkPrediction, config: TrainerConfig) -> Job:
        """Make the job of a member that learns links, which are read once for all members of the same fractions."""
        if not isinstance(task.decoder, str):
            task = replace(task, decoder=deepcopy(task.decoder))  # each member trains a decoder of its own
        known = (self._of_links(other) for other in self._jobs)
        of = task.shares, task.seed if task.shares else None
        linked = next(
            (one.job.linked for one in known if of == (one.task.shares, one.task.seed if one.task.shares else None)),
            None,
        )
        model = self.members[number].model
        return prepare_links(model, self._graph, replace(config, task=task), self._opened, linked=linked)

    def of_links(self, numbers: Sequence[int]) -> list[LinkJob]:
        """Return the jobs of members with their settings, or an empty list if they do not learn links."""
        return [self._of_links(number) for number in numbers if self._jobs[number].linked is not None]

    def _of_links(self, number: int) -> LinkJob:
        return LinkJob(self._jobs[number], self.config_of(number))

    def divided(self, numbers: Sequence[int]) -> list[list[int]]:
        """Divide members into batches that train together, by their regimes and by memory."""
        if links := self.of_links(numbers):
            return divide_links(links, numbers, self._most)
        found: list[list[int]] = []
        drawn = {number: (self.config_of(number).regime, self._jobs[number].both) for number in numbers}
        for draws in dict.fromkeys(drawn.values()):
            alike = [number for number in numbers if drawn[number] == draws]
            found += divide([self._jobs[number] for number in alike], alike, self._config, self._most)
        return found

    def plan(self, together: Sequence[int]) -> Batch:
        """Return the plan by which members train together on the whole graph. Each plan is made once."""
        members = tuple(together)
        if members not in self._plans:
            self._plans[members] = plan_batch([self._jobs[number] for number in members], self._config)
        return self._plans[members]

    def training_plan(self, together: Sequence[int]) -> Batch:
        """Return the plan by which members train together: that of a mini-batch, or of a pass over the whole graph."""
        jobs = [self._jobs[number] for number in together]
        return self.plan(together) if jobs[0].batch is None else plan_mini_batch(jobs, self._config)

    def needs(self, together: Sequence[int]) -> Footprint:
        """Return the estimated memory of members that train together."""
        if links := self.of_links(together):
            return max((one.job.needs(one.config) for one in links), key=lambda needs: needs.peak)
        return self._jobs[together[0]].needs(self._config, self.plan(together).plan)
