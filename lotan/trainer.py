"""Full-batch training: one epoch is one run of the plan, then one step of the optimizer.

Everything before the first epoch is in `lotan.job`; how the steps of a plan run, in `lotan.engines.base`. The README has the
tour of an epoch, and the file to read for each of its stations.
"""

from __future__ import annotations

import json
import logging
import math
import time
import weakref
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from lotan.alternatives import alternative_data, alternative_lines, alternatives
from lotan.analysis import Measure, analysis_data, analysis_lines, analyze
from lotan.arguments import require_kind
from lotan.borders import spark_translated, translated
from lotan.checkpoint import Checkpoint, claimed, keep_as_best, load_checkpoint, put_aside, save_checkpoint
from lotan.cost_cache import PastRun, remember_run
from lotan.early_stopping import EarlyStopping, make_stopping
from lotan.engines.base import PASS_ATTEMPTS, Engine, Outcome, Pass, run
from lotan.engines.opening import check_jar, check_named_router, open_engine
from lotan.errors import ConfigurationError, EngineError, PassLostError
from lotan.graph import Graph
from lotan.job import Job, identity, prepare
from lotan.memory_limit import MemoryLimit
from lotan.memory_watch import MemoryWatch
from lotan.metrics import metrics
from lotan.progress import Progress
from lotan.report import WARM_UP, epoch_seconds, make_report
from lotan.run import Run
from lotan.settings import make_config
from lotan.tracking import Start, Tracker, configuration, open_tracker
from lotan.trained_model import TrainedModel
from planner.explain import Format, PlanStage, PlanView, explain
from planner.physical import Step
from planner.spec import SPLITS

log = logging.getLogger(__name__)

Weights = dict[str, torch.Tensor]


@dataclass
class State:
    """What training has become so far; a checkpoint is a copy of it."""

    optimizer: torch.optim.Optimizer
    stopping: EarlyStopping
    epoch: int  # epochs done
    best_weights: Weights
    history: list[dict[str, Any]]  # one entry an epoch, as in the report
    identity: dict[str, str] = field(default_factory=dict)  # what the run is, where there are checkpoints


class Trainer:
    """Trains a model on a graph.

    Args:
        model: any `torch.nn.Module` whose `forward(x, graph)` composes `lotan.nn` layers and row-wise torch operators.
            It is trained in place: after `fit` it holds the best weights.
        graph: what to train on.
        options: the fields of `lotan.TrainerConfig`, such as `optimizer`, `epochs`, `engine`.

    Raises:
        ConfigurationError: for an unknown or unusable option, or something else than a model and a graph.
    """

    def __init__(self, model: torch.nn.Module, graph: Graph, **options: Any) -> None:
        require_kind("Trainer", "model", model, torch.nn.Module, "a torch.nn.Module, such as lotan.nn.GCN(...)")
        require_kind("Trainer", "graph", graph, Graph, 'a lotan.Graph, such as lotan.Graph.read("digits")')
        self.model = model
        self.graph = graph
        self.config = make_config(options)
        self._opened = ExitStack()  # what `job` stands on
        weakref.finalize(self, self._opened.close)

    @cached_property
    def job(self) -> Job:
        """Graph checked, model traced, epoch planned. Settled at first use: `explain` and `fit` mean the same plan."""
        return prepare(self.model, self.graph, self.config, self._opened)

    def explain(
        self, format: Format = "text", stage: PlanStage = "all", analyze: bool = False, alternatives: bool = False
    ) -> str:
        """What would run and why, see `planner.explain.explain`.

        Args:
            format: see there; with what follows, text or JSON.
            stage: see there.
            analyze: also run some epochs, which change no weight, and set what they cost beside the estimates.
            alternatives: also list the plans that could have been, by their estimated seconds.

        Raises:
            GraphError, ModelError, PlanError: for what cannot be trained, and an unknown format or stage.
            ConfigurationError: a picture was asked for with `analyze` or `alternatives`.
            EngineError: with `analyze`, for a failure while running.
        """
        with translated():
            shown = explain(self.job.planned, format, stage)
        return self._with_more(shown, format, analyze, alternatives) if analyze or alternatives else shown

    @spark_translated()
    def _with_more(self, shown: str, format: Format, analyzed: bool, compared: bool) -> str:
        if format not in ("text", "json"):
            raise ConfigurationError(f"analyze and alternatives go with format 'text' or 'json', not {format!r}")
        others = alternatives(self.job, self.config) if compared else []
        measured = self._analyzed() if analyzed else []
        if format == "json":
            more = {"alternatives": alternative_data(others), "measured": analysis_data(measured)}
            return json.dumps(json.loads(shown) | {name: value for name, value in more.items() if value}, indent=2)
        sections = [*([alternative_lines(others)] if others else []), *([analysis_lines(measured)] if measured else [])]
        return "\n".join([shown, *("\n".join([*lines, ""]) for lines in sections)])

    def _analyzed(self) -> list[Measure]:
        check_named_router(self.config.engine, self.config.router, self.config.keys)
        check_jar(self.config.engine, self.graph)
        return analyze(self.job, self.config, self._weights())

    @property
    def plan(self) -> PlanView:
        """The plan as what shows itself: in a notebook a page, elsewhere the text of `explain`.

        Raises:
            GraphError, ModelError, PlanError: for what cannot be trained.
        """
        with translated():
            return PlanView(self.job.planned)

    @spark_translated()
    def fit(self) -> Run:
        """Train; everything that was started is stopped again, whatever happens.

        Raises:
            GraphError, ModelError, PlanError: before the first epoch, for what cannot be trained.
            EngineError: for a failure while running, and for a loss that is no longer finite.
            CheckpointError: for a checkpoint that cannot be written or does not belong to this run.
        """
        with open_tracker(self.config.log_dir, self.config.mlflow, self.config.resume) as tracker:
            finished = self._fit(tracker)
            tracker.finish(finished)
            return finished

    def _fit(self, tracker: Tracker) -> Run:
        with ExitStack() as stack:
            started = time.perf_counter()
            memory = stack.enter_context(MemoryWatch())
            stack.callback(self._forget_job)
            check_named_router(self.config.engine, self.config.router, self.config.keys)
            check_jar(self.config.engine, self.graph)
            job = self.job
            if self.config.checkpoint_dir is not None:
                stack.enter_context(claimed(Path(self.config.checkpoint_dir)))
            state = self._start(job)
            engine = stack.enter_context(closing(open_engine(job.needs(self.config), job.graph, self.config)))
            engine.load(job.graph, job.plan)
            setup_seconds = time.perf_counter() - started
            earlier = state.epoch
            self._train(job, engine, state, tracker)
            bytes_moved = engine.bytes_moved()
        self._restore(state.best_weights)
        _remember(job, state.history[earlier:])
        return self._finish(job, state, setup_seconds, memory, bytes_moved)

    def _forget_job(self) -> None:
        self.__dict__.pop("job", None)
        self._opened.close()

    def _train(self, job: Job, engine: Engine, state: State, tracker: Tracker) -> None:
        shown = state.epoch - (self._owes_metrics(job, state) and state.epoch < self.config.epochs)
        tracker.begin(
            Start(configuration(self.model, job, self.config), job.planned, state.history[:shown], self._weights())
        )
        with closing(Progress(self.config.epochs, shown, self.config.progress, listener=tracker.epoch)) as progress:
            progress.say(f"memory: {job.planned.options.memory}")
            for warning in job.warnings:
                progress.say(warning)
            if state.epoch:
                progress.say(f"resumed after epoch {state.epoch}")
            while state.epoch < self.config.epochs and not state.stopping.exhausted:
                self._epoch(job, engine, state, progress)
            if "metrics" not in state.history[-1]:  # resumed to end with an epoch that was not to be the last
                self._evaluate(job, engine, state)
                tracker.epoch(state.history[-1])
            if state.stopping.exhausted:
                progress.say(f"stopped early: {state.stopping.monitor} was best in epoch {state.stopping.best_epoch}")

    def _epoch(self, job: Job, engine: Engine, state: State, progress: Progress) -> None:
        """Run the plan, step, evaluate, remember: a transaction that is done when the checkpoint is.

        Where the plan reuses evaluation, its run evaluates the weights before the step: it has the metrics that the epoch
        before owes. If those stop training, there is no step.
        """
        epoch = state.epoch + 1
        started = time.perf_counter()
        outcome = self._run(job, engine, job.plan.train, epoch)
        if self._owes_metrics(job, state):
            ran = time.perf_counter()
            self._settle(job, state, outcome)
            progress.epoch(state.history[-1])
            if state.stopping.exhausted:
                return
            started += time.perf_counter() - ran  # which is time of the epoch before
        loss = self._loss(job, outcome, epoch)
        self._step(state.optimizer, outcome, epoch)
        stepped = time.perf_counter()
        entry = {"epoch": epoch, "loss": loss, "train_seconds": stepped - started, "eval_seconds": 0.0}
        state.history.append(entry)
        state.epoch = epoch
        owes = self._owes_metrics(job, state) and epoch < self.config.epochs
        improved = False
        if self._is_evaluated(epoch) and not owes:
            improved = self._evaluate(job, engine, state)
            entry["eval_seconds"] = time.perf_counter() - stepped
        self._keep(job, state, improved)
        if not owes:
            progress.epoch(entry)

    def _owes_metrics(self, job: Job, state: State) -> bool:
        """Whether the last epoch's metrics are those of a pass to come."""
        owed = state.epoch > 0 and self._is_evaluated(state.epoch) and "metrics" not in state.history[-1]
        return job.plan.reuses_evaluation and owed

    def _settle(self, job: Job, state: State, outcome: Outcome) -> None:
        """Make up for the evaluation of the last epoch, and its checkpoint, where it is the best or training stops."""
        improved = self._remember(job, state, outcome)
        if improved or state.stopping.exhausted:
            self._keep(job, state, improved)

    def _evaluate(self, job: Job, engine: Engine, state: State) -> bool:
        """Put the metrics of the weights as they are into the last epoch's entry; whether they are the best so far."""
        return self._remember(job, state, self._run(job, engine, job.plan.evaluate, state.epoch))

    def _remember(self, job: Job, state: State, outcome: Outcome) -> bool:
        """Of a pass that has counted all splits with the weights as they are; see `_evaluate`."""
        epoch, found = state.epoch, metrics(job.loss, outcome.statistics)
        for split, figures in found.items():
            _check_finite(epoch, figures["loss"], f" over {split!r} after the step")
        state.history[-1]["metrics"] = found
        improved = state.stopping.update(epoch, found)
        if improved:
            state.best_weights = {name: tensor.clone() for name, tensor in self._weights().items()}
        return improved

    def _run(self, job: Job, engine: Engine, steps: tuple[Step, ...], epoch: int) -> Outcome:
        """Walk over the steps; if the walk is lost, from the beginning again: the weights are still those before it."""
        for attempt in range(1, PASS_ATTEMPTS + 1):
            try:
                if attempt > 1:
                    engine.prepare(job.plan)  # what it has computed once may be lost as well
                return run(engine, job.plan, steps, Pass(epoch, self._weights(), self.config.seed))
            except PassLostError as error:
                if attempt == PASS_ATTEMPTS:
                    raise
                log.warning("epoch %d runs again from the weights before it: %s", epoch, error)
        raise AssertionError("the last attempt returns or raises")

    def _loss(self, job: Job, outcome: Outcome, epoch: int) -> float:
        """The training loss before the step, as autograd would have it: with dropout."""
        loss = metrics(job.loss, outcome.statistics)["train"]["loss"]
        _check_finite(epoch, loss)
        return loss

    def _step(self, optimizer: torch.optim.Optimizer, outcome: Outcome, epoch: int) -> None:
        """Take one step. A parameter that the loss does not reach keeps no gradient, and so its value, as in torch."""
        for name, parameter in self.model.named_parameters():
            gradient = outcome.gradients.get(name)
            parameter.grad = None if gradient is None else gradient.to(parameter).view_as(parameter)
        try:
            optimizer.step()
        except RuntimeError as error:  # torch's scalars overflow: a learning rate near float32's limit
            raise EngineError(
                f"epoch {epoch}: the optimizer's step failed: {error}. Lower the learning rate"
            ) from error
        optimizer.zero_grad(set_to_none=True)

    def _is_evaluated(self, epoch: int) -> bool:
        every = self.config.eval_every
        return epoch == self.config.epochs or (every > 0 and epoch % every == 0)

    def _weights(self) -> Weights:
        """Parameters and buffers by name, sharing memory with the model."""
        named = [*self.model.named_parameters(), *self.model.named_buffers()]
        return {name: tensor.detach() for name, tensor in named}

    def _restore(self, weights: Weights) -> None:
        with torch.no_grad():
            for name, tensor in self._weights().items():
                tensor.copy_(weights[name])

    def _start(self, job: Job) -> State:
        """A state to start from: new, or that of the checkpoint, which also sets the model's weights."""
        trainable = {name: tensor for name, tensor in self.model.named_parameters() if tensor.requires_grad}
        validation = job.graph.labels.labelled[SPLITS.index("val")]
        stopping = make_stopping(self.config.monitor, self.config.patience, job.loss.task, validation)
        state = State(self.config.optimizer.build(trainable), stopping, 0, {}, [])
        if self.config.checkpoint_dir is None:
            return state
        directory = Path(self.config.checkpoint_dir)
        state.identity = identity(job, self.config)
        checkpoint = load_checkpoint(directory, state.identity) if self.config.resume else None
        if checkpoint is None:
            put_aside(directory)
            return state
        if checkpoint.epoch == checkpoint.stopping["best_epoch"]:
            keep_as_best(directory)  # killed after one rename and before the other
        self._restore(checkpoint.weights)
        state.optimizer.load_state_dict(checkpoint.optimizer)
        return State(
            optimizer=state.optimizer,
            stopping=EarlyStopping(**checkpoint.stopping),
            epoch=checkpoint.epoch,
            best_weights=checkpoint.best_weights,
            history=checkpoint.history,
            identity=state.identity,
        )

    def _keep(self, job: Job, state: State, best: bool) -> None:
        if self.config.checkpoint_dir is None:
            return
        checkpoint = Checkpoint(
            epoch=state.epoch,
            weights=self._weights(),
            optimizer=state.optimizer.state_dict(),
            stopping=state.stopping.state(),
            best_weights=state.best_weights,
            history=state.history,
            identity=state.identity,
        )
        save_checkpoint(Path(self.config.checkpoint_dir), checkpoint, best=best)

    def _finish(
        self, job: Job, state: State, setup_seconds: float, memory: MemoryWatch, bytes_moved: dict[str, int]
    ) -> Run:
        """What `fit` hands back."""
        best = state.history[state.stopping.best_epoch - 1]
        report = make_report(
            job=job,
            seed=self.config.seed,
            epochs=state.history,
            best_epoch=best["epoch"],
            metrics=best["metrics"],
            setup_seconds=setup_seconds,
            estimated_peak=MemoryLimit.of(self.config).peak(job.needs(self.config)),
            peak_memory=memory.peak,
            bytes_moved=bytes_moved,
        )
        trained = TrainedModel(job.evaluate, job.loss, {name: t.clone() for name, t in self._weights().items()})
        return Run(state.history, best["metrics"], best["epoch"], report, trained, self.graph, self.config)


def _remember(job: Job, epochs: list[dict[str, Any]]) -> None:
    """Keep what the epochs of a run took beside what was estimated, for the estimates of the next ones."""
    if len(epochs) > WARM_UP:
        estimated = job.planned.cost(job.plan.train).groups
        remember_run(job.engine.name, PastRun(estimated, epoch_seconds(epochs)))


def _check_finite(epoch: int, loss: float, where: str = "") -> None:
    if not math.isfinite(loss):
        raise EngineError(
            f"epoch {epoch}: the loss is {loss}{where}. Training diverged: lower the learning rate, or scale the features"
        )
