"""A model in training: its optimizer, history, best weights and checkpoints. It is the same alone and in a batch."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lotan.engines.base import Outcome
from lotan.errors import ConfigurationError, DivergedError
from lotan.planning.identity import identity
from lotan.planning.job import Job
from lotan.settings.changes import PATIENCE, changed_optimizer, copy_numbers
from lotan.settings.config import TrainerConfig
from lotan.settings.metric_names import LOWER_IS_BETTER
from lotan.settings.regimes import MiniBatch
from lotan.settings.row_wise import clip_norm
from lotan.settings.schedulers import Schedule
from lotan.stages.metrics import metrics
from lotan.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    keep_as_best,
    load_checkpoint,
    put_aside,
    save_checkpoint,
)
from lotan.training.early_stopping import EarlyStopping, make_stopping
from lotan.training.penalty import PenaltyTerm
from lotan.training.running import update_running
from planner.spec import SPLITS

Weights = dict[str, torch.Tensor]


@dataclass
class PartOfEpoch:
    """The part of an epoch that is done: its steps so far."""

    batches: int = 0  # steps of the optimizer, one for each mini-batch
    counted: np.ndarray | None = None  # the statistics of these steps; None before the first
    seconds: float = 0.0  # the seconds of their passes and of the steps themselves
    penalties: list[float] = field(default_factory=list)  # one for each step

    def data(self) -> dict[str, Any]:
        """Return it as a checkpoint holds it: nothing before the first step."""
        if self.counted is None:
            return {}
        return {**vars(self), "counted": torch.from_numpy(self.counted.copy())}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> PartOfEpoch:
        """Return what `data` has returned."""
        return cls(**{**data, "counted": data["counted"].numpy()}) if data else cls()


@dataclass
class State:
    """The state of training so far. A checkpoint is a copy of it."""

    optimizer: torch.optim.Optimizer
    schedule: Schedule  # the learning rates
    stopping: EarlyStopping
    epoch: int  # number of finished epochs
    best_weights: Weights
    history: list[dict[str, Any]]  # one entry per epoch, as in the report
    identity: dict[str, str] = field(default_factory=dict)  # what identifies the run; empty without checkpoints
    # settings that were changed when the run went on, each time with "after_epoch"
    changes: list[dict[str, Any]] = field(default_factory=list)
    part: PartOfEpoch = field(default_factory=PartOfEpoch)  # of the epoch after the finished ones


class Learner:
    """A model, together with the state of its training.

    If the plan reuses evaluation, a training pass also evaluates the weights before its step. Until that pass, the
    metrics of the epoch before are missing: the epoch owes its metrics.

    Args:
        model: The model, which is trained in place.
        job: The checked graph, the traced model and the plan.
        config: The settings of the run.

    Raises:
        CheckpointError: If the checkpoint to resume from belongs to a different run, or cannot be read.
        ConfigurationError: If the optimizer, its scheduler or early stopping does not fit the model and the graph.
    """

    def __init__(self, model: torch.nn.Module, job: Job, config: TrainerConfig) -> None:
        self.model, self.job, self.config = model, job, config
        self.state = self._start()
        self.resumed_after = self.state.epoch
        self._penalty = PenaltyTerm(config.penalty, model, self._by_row)
        self._current: Weights = {}  # the weights of the last epoch, while the model holds its best ones

    @property
    def weights(self) -> Weights:
        """The parameters and buffers by name; they share memory with the model."""
        return weights_of(self.model)

    @property
    def exhausted(self) -> bool:
        """True if patience has run out."""
        return self.state.stopping.exhausted

    @property
    def done(self) -> bool:
        """True if no epoch is left. The last epoch may still lack metrics if training was resumed with fewer epochs."""
        return self.state.epoch >= self.config.epochs or self.exhausted

    @property
    def lacks_metrics(self) -> bool:
        """True if the last epoch has no metrics yet."""
        return "metrics" not in self.state.history[-1]

    @property
    def owes_metrics(self) -> bool:
        """True if the last epoch is to be evaluated and its metrics are still missing."""
        return self.state.epoch > 0 and self._is_evaluated(self.state.epoch) and self.lacks_metrics

    @property
    def wants_evaluation(self) -> bool:
        """True if the last epoch needs an evaluation pass of its own."""
        later = self.job.plan.reuses_evaluation and self.state.epoch < self.config.epochs
        return self._is_evaluated(self.state.epoch) and self.lacks_metrics and not later

    @property
    def _kept(self) -> Weights:
        """The parameters and buffers that checkpoints hold, and that are the best ones of an epoch."""
        return self.weights

    @property
    def _by_row(self) -> tuple[str, ...]:
        """The names of the parameters whose gradients are sparse: learned rows in mini-batches."""
        return tuple(self.job.train.learned) if self.job.batch is not None else ()

    # -- an epoch ----------------------------------------------------------------------------------------------------

    def settle(self, outcome: Outcome) -> None:
        """Record the metrics that the last epoch owes. Write its checkpoint if it is the best epoch or if training stops."""
        counts_all = self.job.plan.reuses_evaluation and not self.job.plan.train_and_evaluate
        improved = self.remember(outcome.statistics if counts_all else outcome.evaluation)
        if improved or self.exhausted:
            self.keep(improved)

    def step(self, outcome: Outcome, seconds: float = 0.0) -> None:
        """Take one step of the optimizer: the only one of an epoch, or that of a mini-batch.

        As in torch, a parameter that the loss does not reach has no gradient and keeps its value.

        Args:
            outcome: The result of a training pass.
            seconds: The seconds that the pass took.

        Raises:
            CheckpointError: If a checkpoint is due after this mini-batch and cannot be written.
            DivergedError: If the loss or a number of the step is not finite.
        """
        epoch, part, started = self.state.epoch + 1, self.state.part, time.perf_counter()
        # the loss before the step and with dropout, as autograd would report it
        assert outcome.statistics is not None  # a training pass always has them
        if outcome.statistics[SPLITS.index("train"), 1]:  # without weight, a mini-batch has no loss, and no gradient
            _check_finite(epoch, metrics(self.job.loss, outcome.statistics)["train"]["loss"])
        gradients, penalty = self._penalty.add_to(outcome.gradients, epoch)
        part.penalties.append(penalty)
        for name, parameter in self.model.named_parameters():
            gradient = gradients.get(name)
            if gradient is not None and not gradient.is_sparse:
                gradient = gradient.to(parameter).view_as(parameter)
            parameter.grad = gradient
        if self.config.clip_grad_norm is not None:
            self._clip(self.config.clip_grad_norm)
        try:
            self._take_step()
        except RuntimeError as error:  # torch's scalars overflow if the learning rate is near float32's limit
            raise DivergedError(
                f"epoch {epoch}: the optimizer's step failed: {error}. Lower the learning rate"
            ) from error
        self.state.optimizer.zero_grad(set_to_none=True)
        rows = self.job.statistics.vertices if outcome.rows is None else outcome.rows
        update_running(self.weights, self.job.train.tracked, outcome.gradients, rows)
        part.counted = outcome.statistics if part.counted is None else part.counted + outcome.statistics
        part.batches += 1
        part.seconds += seconds + time.perf_counter() - started
        every = self.config.checkpoint_batches
        if every is not None and part.batches % every == 0:
            self.keep(best=False)

    def _clip(self, most: float) -> None:
        """Scale all gradients, so that their norm is at most `most`."""
        clip = clip_norm if self._by_row else torch.nn.utils.clip_grad_norm_
        clip(self.model.parameters(), most)

    def _take_step(self) -> None:
        """Let the optimizer change the parameters."""
        # else torch warns that it does not check them
        with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
            self.state.optimizer.step()

    def end_epoch(self) -> None:
        """Record an epoch after its last step.

        Its loss is the mean over the examples of all its steps, and the mean penalty of these steps.

        Raises:
            ConfigurationError: If the scheduler of the learning rate has no further steps.
            DivergedError: If the model saw the labels of all training vertices, so that none is left for the loss.
        """
        epoch, rate, part = self.state.epoch + 1, self.state.schedule.figures, self.state.part
        assert part.counted is not None  # an epoch has at least one step
        if self.job.loss.shown is not None and not part.counted[SPLITS.index("train"), 1]:
            raise DivergedError(
                f"epoch {epoch}: the model saw the labels of all training vertices, so that none is left for the loss; lower "
                f"label_rate, which is {self.config.label_rate}, or label more vertices"
            )
        penalty = sum(part.penalties) / len(part.penalties)
        loss = metrics(self.job.loss, part.counted)["train"]["loss"] + penalty
        self.state.schedule.after_step()
        entry = {"epoch": epoch, "loss": loss, **rate, "train_seconds": part.seconds, "eval_seconds": 0.0}
        self.state.history.append(entry)
        self.state.epoch, self.state.part = epoch, PartOfEpoch()

    def remember(self, evaluation: np.ndarray | None, seconds: float = 0.0) -> bool:
        """Record the metrics of the current weights.

        Args:
            evaluation: The statistics of all splits.
            seconds: The seconds of the evaluation, if it had a pass of its own.

        Returns:
            True if the weights are the best so far.

        Raises:
            DivergedError: If a loss is not finite.
        """
        state, entry = self.state, self.state.history[-1]
        assert evaluation is not None  # the pass has counted all splits
        found = metrics(self.job.loss, evaluation)
        for split, figures in found.items():
            _check_finite(state.epoch, figures.get("loss", 0.0), f" over {split!r} after the step")
        entry["metrics"], entry["eval_seconds"] = found, entry["eval_seconds"] + seconds
        state.schedule.after_evaluation(found)
        improved = state.stopping.update(state.epoch, found)
        if improved:
            state.best_weights = {name: tensor.clone() for name, tensor in self._kept.items()}
        return improved

    def keep(self, best: bool) -> None:
        """Write a checkpoint, if the run has a directory for checkpoints.

        Args:
            best: True if the last epoch is the best so far.
        """
        if self.config.checkpoint_dir is None:
            return
        state = self.state
        checkpoint = Checkpoint(
            epoch=state.epoch,
            weights=self._saved_weights(),
            optimizer=self._optimizer_state(),
            schedule=state.schedule.state(),
            stopping=state.stopping.state(),
            best_weights=self._saved_best_weights(),
            history=state.history,
            identity=state.identity,
            changes=state.changes,
            storage=self._storage_state(),
            part=state.part.data(),
        )
        save_checkpoint(Path(self.config.checkpoint_dir), checkpoint, best=best)

    def _saved_weights(self) -> Weights:
        """Return the parameters and buffers, as a checkpoint holds them."""
        return self._kept

    def _saved_best_weights(self) -> Weights:
        """Return those of the best epoch, as a checkpoint holds them."""
        return self.state.best_weights

    def _optimizer_state(self) -> dict[str, Any]:
        """Return the state of the optimizer, as a checkpoint holds it."""
        return self.state.optimizer.state_dict()

    def _storage_state(self) -> dict[str, Any]:
        """Return what a checkpoint says of rows in files: nothing, as all are in memory."""
        return {}

    def _resume_storage(self, storage: Mapping[str, Any]) -> None:
        """Go on from the rows in files that a checkpoint names."""

    def _is_evaluated(self, epoch: int) -> bool:
        every = self.config.eval_every
        return epoch == self.config.epochs or (every > 0 and epoch % every == 0)

    # -- its begin and its end ---------------------------------------------------------------------------------------

    def _start(self) -> State:
        """Return the initial state. If there is a checkpoint to resume from, the state and the model's weights come from it."""
        job, config = self.job, self.config
        trainable = {name: tensor for name, tensor in self.model.named_parameters() if tensor.requires_grad}
        validation = job.validation
        stopping = make_stopping(config.monitor, config.patience, job.loss.task, validation)
        optimizer = config.optimizer.build(trainable, self._by_row)
        if isinstance(config.regime, MiniBatch) and config.regime.is_fixed and not validation:
            raise ConfigurationError(
                f"regime MiniBatch has order {config.regime.order!r}, which follows a metric of the split 'val': put labelled "
                "vertices there, or leave order out"
            )
        schedule = Schedule(config.lr_scheduler, optimizer, stopping.monitor, stopping.monitor in LOWER_IS_BETTER)
        if schedule.follows_metric and not (validation and config.eval_every):
            raise ConfigurationError(
                "lr_scheduler ReduceLROnPlateau follows a metric of the split 'val': put labelled vertices, or links, there, and "
                "leave eval_every at 1 or more"
            )
        state = State(optimizer, schedule, stopping, 0, {}, [])
        if config.checkpoint_dir is None:
            return state
        directory = Path(config.checkpoint_dir)
        state.identity = identity(job, config)
        checkpoint = load_checkpoint(directory, state.identity) if config.resume else None
        if checkpoint is None and config.resume_with:
            raise CheckpointError(
                f"resume_with changes settings of a run that goes on, and {directory} holds no checkpoint; name the directory of "
                "that run, or leave resume_with out"
            )
        if checkpoint is None:
            put_aside(directory)
            return state
        _check_epochs(directory, checkpoint, config.epochs)
        if checkpoint.is_last and checkpoint.epoch == checkpoint.stopping["best_epoch"] and not checkpoint.part:
            keep_as_best(directory)  # the earlier run was killed between its two renames
        self._restore(checkpoint.weights)
        self._resume_storage(checkpoint.storage)
        state.optimizer.load_state_dict(checkpoint.optimizer)
        schedule.load(checkpoint.schedule)
        resumed = State(
            optimizer=state.optimizer,
            schedule=schedule,
            stopping=EarlyStopping(**checkpoint.stopping),
            epoch=checkpoint.epoch,
            best_weights=checkpoint.best_weights,
            history=checkpoint.history,
            identity=state.identity,
            changes=checkpoint.changes,
            part=PartOfEpoch.of(checkpoint.part),
        )
        self._change(resumed, trainable)
        return resumed

    def _change(self, state: State, trainable: Mapping[str, torch.nn.Parameter]) -> None:
        """Change the settings with which the run is to go on, and record those that differ from what they were."""
        config, changes = self.config, dict(self.config.resume_with or {})
        if not changes:
            return
        before = _numbers(state, changes)
        if PATIENCE in changes:
            patience = changes.pop(PATIENCE)
            assert patience is None or isinstance(patience, int)  # the configuration was checked
            state.stopping.patience = make_stopping(
                config.monitor, patience, self.job.loss.task, self.job.validation
            ).patience
        copy_numbers(changed_optimizer(config).build(trainable, self._by_row), state.optimizer, changes)
        if _numbers(state, config.resume_with or {}) != before:
            state.changes.append({"after_epoch": state.epoch, **(config.resume_with or {})})

    def restore_best(self) -> None:
        """Load the best weights into the model, if there was an evaluation. `go_on` undoes it."""
        if self.state.best_weights:
            self._current = self._current or {name: tensor.clone() for name, tensor in self._kept.items()}
            self._restore(self.state.best_weights)

    def go_on(self) -> None:
        """Load the weights of the last epoch into the model again."""
        if self._current:
            self._restore(self._current)
            self._current = {}

    @property
    def best(self) -> Mapping[str, Any]:
        """The history entry of the best epoch."""
        entry: Mapping[str, Any] = self.state.history[self.state.stopping.best_epoch - 1]
        return entry

    def _restore(self, weights: Weights) -> None:
        with torch.no_grad():
            for name, tensor in self._kept.items():
                tensor.copy_(weights[name])


def _numbers(state: State, names: Iterable[str]) -> list[Any]:
    """Return the values of settings that a run may change, for each group of the optimizer's parameters."""
    return [state.stopping.patience, *(group.get(name) for group in state.optimizer.param_groups for name in names)]


def _check_epochs(directory: Path, checkpoint: Checkpoint, epochs: int) -> None:
    if checkpoint.part and checkpoint.epoch >= epochs:
        raise CheckpointError(
            f"the checkpoint in {directory} was written within epoch {checkpoint.epoch + 1}, but epochs is {epochs}: resume with "
            f"epochs={checkpoint.epoch + 1} or more"
        )


def weights_of(model: torch.nn.Module) -> Weights:
    """Return parameters and buffers by name; they share memory with the model."""
    return {name: tensor.detach() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}


def _check_finite(epoch: int, loss: float, where: str = "") -> None:
    if not math.isfinite(loss):
        raise DivergedError(
            f"epoch {epoch}: the loss is {loss}{where}. Training diverged: lower the learning rate, or scale the features"
        )
