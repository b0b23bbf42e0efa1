"""Many models trained on one graph over the same passes: common parts are computed once, the rest side by side.

Each model has the same bits as if it were trained alone, whatever the other models are. See
`planner.rules.share_models` and `lotan.stages.side_by_side`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from lotan.arguments import A_GRAPH, require_kind
from lotan.batch.jobs import MemberJobs
from lotan.batch.links import LinkJob, link_plan_data, link_plan_lines, shared_batches
from lotan.batch.members import Member, MemberState, check_own
from lotan.batch.report import batch_report, plan_data, plan_lines
from lotan.batches.links import LinkBatches
from lotan.batches.opening import open_batches
from lotan.batches.schedule import TrainingBatches
from lotan.borders import spark_translated
from lotan.engines.base import Engine
from lotan.engines.choice import settled_for
from lotan.engines.local.engine import LocalEngine
from lotan.engines.opening import check_engine
from lotan.errors import ConfigurationError, DivergedError
from lotan.graph.graph import Graph
from lotan.memory.watch import MemoryWatch
from lotan.results.run import Run
from lotan.settings.config import MEMBER_SETTINGS, TrainerConfig, given_config
from lotan.settings.metric_names import LOWER_IS_BETTER
from lotan.settings.named_calls import words_of
from lotan.settings.regimes import MiniBatch
from lotan.settings.tasks import LinkPrediction
from lotan.tracking import MemberTrackers
from lotan.training.checkpoint import claimed
from lotan.training.epochs import evaluate, run_epoch
from lotan.training.finish import finished
from lotan.training.learner import Learner
from lotan.training.link_passes import LinkPassesOfModels
from lotan.training.loaded_engine import LoadedEngine
from lotan.training.passes import BatchPasses, Passes
from planner.batch import by_content
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
        # mini-batches, with the members that train on them
        self._sampled: tuple[tuple[int, ...], TrainingBatches] | None = None
        self._told, self._opened = on_epoch, ExitStack()
        self._jobs = MemberJobs(graph, self.config, max_models, self._opened)
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
        first = len(self._jobs.members)
        for number, member in enumerate(members, first):
            require_kind("ModelBatch", "member", member, Member, "a lotan.Member(model, ...)")
            require_kind(
                "Member", "model", member.model, torch.nn.Module, "a torch.nn.Module, such as lotan.nn.GCN(...)"
            )
            self._check_task(self._jobs.config_of(number, member))
            check_own(member, self._jobs.members)
            self._jobs.members.append(member)
            self.states.append(MemberState(number, self._jobs.name_of(number)))
        return list(range(first, len(self._jobs.members)))

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
        others = {isinstance(self._jobs.config_of(n).task, LinkPrediction) for n in range(len(self._jobs.members))}
        if others - {isinstance(config.task, LinkPrediction)}:
            raise ConfigurationError(
                "some members have the task LinkPrediction, and others learn labels; train them in two batches"
            )

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
        self.batches = self._jobs.divided(chosen)
        needs = max(
            (self._jobs.needs(batch) for batch in self.batches), key=lambda needs: (needs.heap, needs.in_memory or 0)
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
        jobs = self._jobs.prepare(chosen)
        for number, job in zip(chosen, jobs, strict=True):
            state = self.states[number]
            if state.learner is not None:
                state.learner.go_on()
            else:
                config = self._jobs.config_of(number)
                if config.checkpoint_dir is not None:
                    self._opened.enter_context(claimed(Path(config.checkpoint_dir)))
                state.learner = Learner(job.learned(self._jobs.members[number].model), job, config)
                self._trackers.begin(number, state.name, state.learner)
                state.state = "training"

    def _passes(self, together: Sequence[int], needs: Footprint) -> Passes:
        """Return the passes of the members that train together, on an engine that is ready for their plan."""
        learners = [learner for number in together if (learner := self.states[number].learner) is not None]
        if links := self._jobs.of_links(together):
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
        batch = self._jobs.plan(together)
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
        first, config = self._jobs[together[0]], self._jobs.config_of(together[0])
        return open_batches(engine, first.graph, self._jobs.training_plan(together).plan, config, first.both, epochs)

    def _mini_batches(
        self, together: Sequence[int], opened: Callable[[int], TrainingBatches]
    ) -> TrainingBatches | None:
        """Return the mini-batches of the members that train together, or None if they train on the whole graph."""
        members, first = tuple(together), self._jobs[together[0]]
        if first.batch is None:
            return None
        if self._sampled is None or self._sampled[0] != members:
            self._close_sampled()
            epochs = max(self._jobs.members[number].epochs for number in members)
            self._sampled = members, opened(epochs)
        return self._sampled[1]

    def _close_sampled(self) -> None:
        if self._sampled is not None:
            self._sampled[1].close()
            self._sampled = None

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
        if not self._jobs.made:
            raise ConfigurationError("there is nothing to report: train first")
        plans = [
            link_plan_data(links, batch)
            if (links := self._jobs.of_links(batch))
            else plan_data(self._jobs.training_plan(batch), batch, self._jobs[batch[0]])
            for batch in self.batches
        ]
        members = [self._described(state) for state in self.states]
        job = self._jobs.made[0]
        moved = self._engine.bytes_moved()
        return batch_report(job, plans, members, self.setup_seconds, self._memory.peak, moved)

    def _described(self, state: MemberState) -> dict[str, Any]:
        member = self._jobs.members[state.number]
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
        self._jobs.prepare(numbers)
        lines = [
            link_plan_lines(links, batch)
            if (links := self._jobs.of_links(batch))
            else plan_lines(self._jobs.training_plan(batch), batch, self._jobs[batch[0]])
            for batch in self._jobs.divided(numbers)
        ]
        return "\n".join(line for of_batch in lines for line in [*of_batch, ""])
