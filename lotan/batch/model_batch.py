"""Many models trained on one graph over the same passes: common parts are computed once, the rest side by side.

Each model has the same bits as if it were trained alone, whatever the other models are. See
`planner.rules.share_models` and `lotan.stages.side_by_side`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from lotan.arguments import A_GRAPH, require_kind
from lotan.batch.links import LinkJob, divide_links, link_plan_data, link_plan_lines, shared_batches
from lotan.batch.members import Member, MemberState, check_own, folder_of
from lotan.batch.plan import divide, plan_batch, plan_mini_batch
from lotan.batch.report import batch_report, plan_data, plan_lines
from lotan.batches.links import LinkBatches
from lotan.batches.opening import open_batches
from lotan.batches.schedule import TrainingBatches
from lotan.borders import PlanError, spark_translated
from lotan.engines.base import Engine
from lotan.engines.choice import settled_for
from lotan.engines.local import LocalEngine
from lotan.engines.opening import check_engine
from lotan.errors import ConfigurationError, DivergedError, ModelError
from lotan.graph.graph import Graph
from lotan.memory.watch import MemoryWatch
from lotan.planning.job import Job
from lotan.planning.links import prepare_links
from lotan.planning.prepare import prepare
from lotan.results.run import Run
from lotan.settings.config import MEMBER_SETTINGS, TrainerConfig, given_config
from lotan.settings.metric_names import LOWER_IS_BETTER
from lotan.settings.named_calls import words_of
from lotan.settings.regimes import MiniBatch
from lotan.settings.tasks import LinkPrediction
from lotan.tracing.signature import takes_labels
from lotan.tracking import MemberTrackers
from lotan.training.checkpoint import claimed
from lotan.training.epochs import evaluate, run_epoch
from lotan.training.finish import finished
from lotan.training.learner import Learner
from lotan.training.link_passes import LinkPassesOfModels
from lotan.training.loaded_engine import LoadedEngine
from lotan.training.passes import BatchPasses, Passes
from planner.batch import Batch, by_content
from planner.footprint import Footprint
from planner.physical import Plan


class ModelBatch:
    """Trains many models on one graph over shared passes.

    A batch is used as a context, which stops all processes that it has started.

        with lotan.ModelBatch(graph, [lotan.Member(one), lotan.Member(other, optimizer=lotan.SGD(lr=0.1))]) as batch:
            batch.train()
            runs = batch.runs()

    Models of any kind may be in one batch; the Planner shares what it can. If memory is too small for all models
    together, they are trained in several batches, one after the other. So are models of different regimes.

    If the task is `lotan.LinkPrediction`, models that draw the same links, negatives and edges train in step. On `blocks`
    they train one after the other, on a graph that is loaded once.

    Args:
        graph: The graph that all members are trained on.
        members: The models, each with its own settings.
        on_epoch: A function that is called with a member's number and its history entry once an epoch has its figures.
        max_models: The largest number of models that train together; None: as many as fit into memory.
        options: The fields of `lotan.TrainerConfig` that are common to all members, such as `engine`. In
            `checkpoint_dir` and `log_dir`, each member has a directory of its own.

    Raises:
        ConfigurationError: If an option is unknown or unusable.
    """

    def __init__(
        self,
        graph: Graph,
        members: Sequence[Member],
        *,
        on_epoch: Callable[[int, dict[str, Any]], None] | None = None,
        max_models: int | None = None,
        **options: Any,
    ) -> None:
        require_kind("ModelBatch", "graph", graph, Graph, A_GRAPH)
        if own := [name for name in MEMBER_SETTINGS if name in options]:
            raise ConfigurationError(f"{', '.join(own)}: each member has its own; give it to lotan.Member")
        if max_models is not None and (type(max_models) is not int or max_models < 1):
            raise ConfigurationError(f"max_models is {max_models!r}; expected an integer of at least 1")
        self.graph, self.config = graph, settled_for(given_config(options), graph)
        self.states: list[MemberState] = []
        self.batches: list[list[int]] = []  # member numbers, grouped by the batch in which they were trained last
        self._members: list[Member] = []
        self._jobs: dict[int, Job] = {}
        self._plans: dict[tuple[int, ...], Batch] = {}  # the plans, by the members that train together
        # mini-batches, with the members that train on them
        self._sampled: tuple[tuple[int, ...], TrainingBatches] | None = None
        self._told, self._most = on_epoch, max_models
        self._opened = ExitStack()
        self._trackers = MemberTrackers()
        self._engine = LoadedEngine(self.config, self._opened)
        self._memory = MemoryWatch()
        self.setup_seconds = 0.0
        self.add(members)

    def __enter__(self) -> ModelBatch:
        self._opened.enter_context(self._memory)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish_tracked()
        finally:
            self.close()

    def close(self) -> None:
        """Stop all processes that were started. This may be called twice."""
        try:
            self._trackers.close()
        finally:
            self._close_sampled()
            self._engine.leave()
            self._opened.close()

    # -- members -----------------------------------------------------------------------------------------------------

    def add(self, members: Sequence[Member]) -> list[int]:
        """Add members, and return their numbers.

        Raises:
            ConfigurationError: If an item is not a member, a setting is unusable, or a model shares weights with
                another member's model.
        """
        first = len(self._members)
        for number, member in enumerate(members, first):
            require_kind("ModelBatch", "member", member, Member, "a lotan.Member(model, ...)")
            require_kind(
                "Member", "model", member.model, torch.nn.Module, "a torch.nn.Module, such as lotan.nn.GCN(...)"
            )
            self._check_task(self._config_of(number, member))
            check_own(member, self._members)
            self._members.append(member)
            self.states.append(MemberState(number, member.name or f"model {number}"))
        return list(range(first, len(self._members)))

    def _check_task(self, config: TrainerConfig) -> None:
        """Refuse members that learn links beside others that learn labels, and batches that follow a model's validation."""
        if isinstance(config.regime, MiniBatch) and config.regime.is_fixed:
            raise ConfigurationError(
                f"regime MiniBatch has order {config.regime.order!r}, which follows the validation of one model, and models that "
                "train together share their batches: leave order out, or use a Trainer"
            )
        if isinstance(config.regime, MiniBatch) and config.regime.is_stored:
            raise ConfigurationError(
                f"regime MiniBatch has order {config.regime.order!r}, and models that train together do not train from a disk so "
                "far; train each with a Trainer, or leave order out"
            )
        if config.tables is not None:
            raise ConfigurationError(
                "tables has the learned rows of one model so far, and models that train together have rows each: leave tables "
                "out, or use a Trainer"
            )
        others = {isinstance(self._config_of(n, one).task, LinkPrediction) for n, one in enumerate(self._members)}
        if others - {isinstance(config.task, LinkPrediction)}:
            raise ConfigurationError(
                "some members have the task LinkPrediction, and others learn labels; train them in two batches"
            )

    def _config_of(self, number: int, member: Member) -> TrainerConfig:
        folders: dict[str, Any] = {
            name: folder_of(folder, number)
            for name in ("checkpoint_dir", "log_dir")
            if (folder := getattr(self.config, name)) is not None
        }
        own = {name: given for name in ("regime", "task") if (given := getattr(member, name)) is not None}
        settings = {name: getattr(member, name) for name in MEMBER_SETTINGS}
        return replace(self.config, **settings, **own, **folders).settled()

    def stop(self, number: int, reason: str) -> None:
        """Stop the training of a member.

        Args:
            number: The number of the member.
            reason: The reason, for the report.
        """
        state = self.states[number]
        if not state.ended:
            state.state, state.reason = "stopped", reason

    # -- training ----------------------------------------------------------------------------------------------------

    @spark_translated()
    def train(self, upto: int | None = None, only: Collection[int] | None = None) -> None:
        """Train every member until the given epoch, its own last epoch, or its early stop.

        A further call continues the training. A member whose numbers are no longer finite ends, and the others continue
        unchanged.

        Args:
            upto: The epoch after which to pause; None: each member's last epoch.
            only: The numbers of the members to train; None: all members.

        Raises:
            GraphError, ModelError, PlanError: Before the first epoch, if a model cannot be trained on the graph.
            EngineError: If an engine or a worker fails.
            CheckpointError: If a checkpoint cannot be written or belongs to a different run.
        """
        chosen = [state.number for state in self.states if not state.ended and (only is None or state.number in only)]
        if not chosen:
            return
        started = time.perf_counter()
        self._begin(chosen)
        self.batches = self._divided(chosen)
        needs = max(
            (self._needs(batch) for batch in self.batches), key=lambda needs: (needs.heap, needs.in_memory or 0)
        )
        for batch in self.batches:
            waiting = [number for number in batch if self._goes_on(number, upto)]
            while waiting:
                least = min(self.states[number].place for number in waiting)
                together = [number for number in waiting if self.states[number].place == least]
                passes = self._passes(together, needs)
                self.setup_seconds += time.perf_counter() - started
                waiting = self._epochs(passes, together, waiting, upto)
                started = time.perf_counter()
            self._evaluate_late(batch, needs)

    def _epochs(self, passes: Passes, together: list[int], waiting: list[int], upto: int | None) -> list[int]:
        """Run epochs for members that train together, until one of them stops or others have to join.

        Returns:
            The numbers of all members that still wait for epochs.
        """
        others = [number for number in waiting if number not in together]
        next_of_others = min((self.states[number].place for number in others), default=(sys.maxsize, 0))
        while True:
            run_epoch(passes, self._tell, self._guard)
            if self.config.progress:
                print(self._line(together), file=sys.stderr, flush=True)
            self._engine.settle(passes)
            going = [number for number in together if self._goes_on(number, upto)]
            self._end(passes, [number for number in together if number not in going])
            if going != together or not going or self.states[going[0]].place >= next_of_others:
                return sorted([*going, *others])

    def _end(self, passes: Passes, numbers: Sequence[int]) -> None:
        """Do what is left after the last epoch of members that have all their metrics."""
        states = [self.states[number] for number in numbers if self.states[number].state in ("done", "stopped early")]
        passes.end([state.learner for state in states if state.learner is not None and not state.learner.lacks_metrics])

    def _line(self, together: Sequence[int]) -> str:
        """Return the line for an epoch: how many models were trained, and which model is the best so far."""
        known = [state for state in self.states if state.best_epoch is not None and state.state != "diverged"]
        words = f"epoch {max(self.states[number].epoch for number in together)}: {len(together)} models"
        stopping = [(state, state.learner.state.stopping) for state in known if state.learner is not None]
        scored = [(state, one) for state, one in stopping if one.best is not None]
        if not scored:
            return words
        sign = -1 if scored[0][1].monitor in LOWER_IS_BETTER else 1
        best, one = max(scored, key=lambda pair: sign * (pair[1].best or 0.0))
        return f"{words}  best val {one.monitor} {one.best:.4f} ({best.name})"

    def _goes_on(self, number: int, upto: int | None) -> bool:
        state = self.states[number]
        assert state.learner is not None  # its training has begun
        if not state.ended and state.learner.done:
            state.state = "stopped early" if state.learner.exhausted else "done"
        return not state.ended and (upto is None or state.epoch < upto)

    def _evaluate_late(self, batch: Sequence[int], needs: Footprint) -> None:
        """Evaluate members that ended without metrics, because training was resumed with fewer epochs."""
        late = [
            number
            for number in batch
            if (learner := self.states[number].learner)
            and self.states[number].state == "done"
            and learner.lacks_metrics
        ]
        for number in late:
            passes = self._passes([number], needs)
            for learner, improved in evaluate(passes, passes.learners, self._guard).items():
                learner.keep(improved)
                self._tell(learner)
            self._end(passes, [number])
            self._engine.settle(passes)

    def _tell(self, learner: Learner) -> None:
        number, entry = self._state_of(learner).number, learner.state.history[-1]
        self._trackers.epoch(number, entry)
        if self._told is not None:
            self._told(number, entry)

    @contextmanager
    def _guard(self, learner: Learner) -> Iterator[None]:
        try:
            yield
        except DivergedError as error:
            state = self._state_of(learner)
            state.state, state.reason = "diverged", str(error)

    def _state_of(self, learner: Learner) -> MemberState:
        return next(state for state in self.states if state.learner is learner)

    # -- jobs, plans and the engine ----------------------------------------------------------------------------------

    def _begin(self, chosen: Sequence[int]) -> None:
        """Trace, check and plan the chosen models if needed, and begin or resume their training."""
        check_engine(self.config, self.graph)
        jobs = self._prepare(chosen)
        for number, job in zip(chosen, jobs, strict=True):
            state, member = self.states[number], self._members[number]
            if state.learner is not None:
                state.learner.go_on()
            else:
                config = self._config_of(number, member)
                if config.checkpoint_dir is not None:
                    self._opened.enter_context(claimed(Path(config.checkpoint_dir)))
                state.learner = Learner(job.learned(member.model), job, config)
                self._trackers.begin(number, state.name, state.learner)
                state.state = "training"

    def _prepare(self, numbers: Sequence[int]) -> list[Job]:
        """Return the jobs of members. Each job is made once."""
        for number in numbers:
            if number not in self._jobs:
                self._jobs[number] = self._prepared(number)
        return [self._jobs[number] for number in numbers]

    def _prepared(self, number: int) -> Job:
        """Make the job of a member, on the engine that was chosen for the first member."""
        config, others = self._config_of(number, self._members[number]), list(self._jobs.values())
        if isinstance(config.task, LinkPrediction):
            return self._prepared_links(number, config.task, config)
        if others:
            engine = others[0].engine.name
            settings: dict[str, Any] = {"engine": engine, "partitions": others[0].partitions or config.partitions}
            settings |= {"router": None, "keys": None} if engine == "local" else {}
            config = replace(config, **settings)
        graph = others[0].graph if others else self.graph
        if others and takes_labels(self._members[number].model) != others[0].train.sees_labels:
            raise ConfigurationError(
                "some members take labels as input, which are one more feature, and others do not; train them in two batches"
            )
        count = min(len(self._members), self._most or len(self._members))
        try:
            job = prepare(self._members[number].model, graph, config, self._opened, models=count)
        except (ModelError, PlanError) as error:
            raise type(error)(f"{error} (in {self.states[number].name})") from error
        return replace(job, engine=others[0].engine, partitions=others[0].partitions) if others else job

    def _prepared_links(self, number: int, task: LinkPrediction, config: TrainerConfig) -> Job:
        """Make the job of a member that learns links, which are read once for all members of the same fractions."""
        if not isinstance(task.decoder, str):
            task = replace(task, decoder=deepcopy(task.decoder))  # each member trains a decoder of its own
        known = (self._link_job(other) for other in self._jobs)
        of = task.shares, task.seed if task.shares else None
        linked = next(
            (one.job.linked for one in known if of == (one.task.shares, one.task.seed if one.task.shares else None)),
            None,
        )
        try:
            own = replace(config, task=task)
            return prepare_links(self._members[number].model, self.graph, own, self._opened, linked=linked)
        except (ModelError, PlanError) as error:
            raise type(error)(f"{error} (in {self.states[number].name})") from error

    def _link_job(self, number: int) -> LinkJob:
        return LinkJob(self._jobs[number], self._config_of(number, self._members[number]))

    def _link_jobs(self, numbers: Sequence[int]) -> list[LinkJob]:
        """Return the jobs of members with their settings, or an empty list if they do not learn links."""
        return [self._link_job(number) for number in numbers if self._jobs[number].linked is not None]

    def _divided(self, numbers: Sequence[int]) -> list[list[int]]:
        """Divide members into batches that train together, by their regimes and by memory."""
        if links := self._link_jobs(numbers):
            return divide_links(links, numbers, self._most)
        found: list[list[int]] = []
        drawn = {n: (self._config_of(n, self._members[n]).regime, self._jobs[n].both) for n in numbers}
        for draws in dict.fromkeys(drawn.values()):
            alike = [number for number in numbers if drawn[number] == draws]
            found += divide([self._jobs[number] for number in alike], alike, self.config, self._most)
        return found

    def _passes(self, together: Sequence[int], needs: Footprint) -> Passes:
        """Return the passes of the members that train together, on an engine that is ready for their plan."""
        learners = [learner for number in together if (learner := self.states[number].learner) is not None]
        if links := self._link_jobs(together):
            if not links[0].job.traits.in_process:
                return self._passes_on_blocks(together, links[0], learners[0], needs)
            batches = self._mini_batches(together, lambda epochs: shared_batches(links, epochs))

            def ready(learner: Learner) -> tuple[LocalEngine, Plan]:
                plan = by_content(learner.job.plan)
                engine = self._engine.ready(plan, learner.job.graph, needs, learner.job.linked)
                assert isinstance(engine, LocalEngine)  # the settings refuse others
                return engine, plan

            assert batches is None or isinstance(batches, LinkBatches)
            return LinkPassesOfModels(ready, learners, [one.task for one in links], batches)
        batch = self._planned(together)
        engine = self._engine.ready(batch.plan, self._jobs[together[0]].graph, needs)
        return BatchPasses(
            engine, batch, learners, self._mini_batches(together, partial(self._drawn, engine, together))
        )

    def _passes_on_blocks(self, together: Sequence[int], one: LinkJob, learner: Learner, needs: Footprint) -> Passes:
        """Return the passes of the one member that learns links on blocks at a time."""
        from lotan.training.links_on_blocks import (  # the local engine needs no Spark
            BlocksLinkMember,
            batches_on_blocks,
        )

        plan = by_content(one.job.plan)
        engine = self._engine.ready(plan, one.job.graph, needs, one.job.linked)
        batches = self._mini_batches(together, lambda _: batches_on_blocks(engine, one.job, one.config))
        return BlocksLinkMember(engine, learner, one.task, batches, plan)

    def _drawn(self, engine: Engine, together: Sequence[int], epochs: int) -> TrainingBatches:
        first, config = self._jobs[together[0]], self._config_of(together[0], self._members[together[0]])
        return open_batches(engine, first.graph, self._training_plan(together).plan, config, first.both, epochs)

    def _mini_batches(
        self, together: Sequence[int], opened: Callable[[int], TrainingBatches]
    ) -> TrainingBatches | None:
        """Return the mini-batches of the members that train together, or None if they train on the whole graph."""
        members, first = tuple(together), self._jobs[together[0]]
        if first.batch is None:
            return None
        if self._sampled is None or self._sampled[0] != members:
            self._close_sampled()
            epochs = max(self._members[number].epochs for number in members)
            self._sampled = members, opened(epochs)
        return self._sampled[1]

    def _close_sampled(self) -> None:
        if self._sampled is not None:
            self._sampled[1].close()
            self._sampled = None

    def _training_plan(self, together: Sequence[int]) -> Batch:
        """Return the plan by which members train together: that of a mini-batch, or of a pass over the whole graph."""
        jobs = [self._jobs[number] for number in together]
        return self._planned(together) if jobs[0].batch is None else plan_mini_batch(jobs, self.config)

    def _needs(self, together: Sequence[int]) -> Footprint:
        if links := self._link_jobs(together):
            return max((one.job.needs(one.config) for one in links), key=lambda needs: needs.peak)
        return self._jobs[together[0]].needs(self.config, self._planned(together).plan)

    def _planned(self, together: Sequence[int]) -> Batch:
        members = tuple(together)
        if members not in self._plans:
            self._plans[members] = plan_batch([self._jobs[number] for number in members], self.config)
        return self._plans[members]

    def _finish_tracked(self) -> None:
        for state in self.states:
            if state.number in self._trackers and state.state != "diverged" and state.best_epoch is not None:
                self._trackers.finish(state.number, self.run_of(state.number))

    # -- results -----------------------------------------------------------------------------------------------------

    def run_of(self, number: int) -> Run:
        """Return the run of a member that has been evaluated, as `Trainer.fit` would.

        The member's model holds its best weights until it is trained further.

        Raises:
            ConfigurationError: If the member has not been evaluated yet.
        """
        state = self.states[number]
        if state.learner is None or state.best_epoch is None:
            raise ConfigurationError(f"{state.name} has no evaluation: {state.reason or 'train it first'}")
        state.learner.restore_best()
        return finished(state.learner, self.graph, self.setup_seconds, self._memory.peak, self._engine.bytes_moved())

    def runs(self) -> dict[int, Run]:
        """Return the runs of all members that have been evaluated, by number."""
        return {state.number: self.run_of(state.number) for state in self.states if state.best_epoch is not None}

    def report(self) -> dict[str, Any]:
        """Report what was run and measured, as plain data for JSON. Seconds are wall time, sizes are bytes.

        The page docs/concepts/model-batches.md explains its entries.

        Raises:
            ConfigurationError: If nothing has been trained yet.
        """
        if not self._jobs:
            raise ConfigurationError("there is nothing to report: train first")
        plans = [
            link_plan_data(links, batch)
            if (links := self._link_jobs(batch))
            else plan_data(self._training_plan(batch), batch, self._jobs[batch[0]])
            for batch in self.batches
        ]
        members = [self._described(state) for state in self.states]
        job = next(iter(self._jobs.values()))
        moved = self._engine.bytes_moved()
        return batch_report(job, plans, members, self.setup_seconds, self._memory.peak, moved)

    def _described(self, state: MemberState) -> dict[str, Any]:
        member = self._members[state.number]
        return {
            "number": state.number,
            "name": state.name,
            "state": state.state,
            "reason": state.reason,
            "optimizer": repr(member.optimizer),
            "lr_scheduler": None if member.lr_scheduler is None else words_of(member.lr_scheduler),
            "clip_grad_norm": member.clip_grad_norm,
            "seed": member.seed,
            "best_epoch": state.best_epoch,
            "metrics": state.metrics,
            "epochs": state.history,
        }

    @spark_translated()
    def explain(self) -> str:
        """Return the steps of an epoch in words, for each batch: which steps models share, and which run side by side.

        Raises:
            GraphError, ModelError, PlanError: If a model cannot be trained on the graph.
        """
        numbers = [state.number for state in self.states]
        self._prepare(numbers)
        lines = [
            link_plan_lines(links, batch)
            if (links := self._link_jobs(batch))
            else plan_lines(self._training_plan(batch), batch, self._jobs[batch[0]])
            for batch in self._divided(numbers)
        ]
        return "\n".join(line for of_batch in lines for line in [*of_batch, ""])
