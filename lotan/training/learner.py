"""A model while it is trained: its optimizer, its history, its best weights, its checkpoints. Alone or in a batch, the same."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lotan.engines.base import Outcome
from lotan.errors import DivergedError
from lotan.planning.job import Job, identity
from lotan.settings.config import TrainerConfig
from lotan.stages.metrics import metrics
from lotan.training.checkpoint import Checkpoint, keep_as_best, load_checkpoint, put_aside, save_checkpoint
from lotan.training.early_stopping import EarlyStopping, make_stopping
from planner.spec import SPLITS

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


class Learner:
    """A model that passes over the graph are run for.

    Where the plan reuses evaluation, a pass of training evaluates the weights before its step: the epoch before owes metrics
    until then.

    Args:
        model: trained in place.
        job: what it is to do.
        config: as asked for.

    Raises:
        CheckpointError: to resume from a checkpoint that does not belong to this run, or cannot be read.
        ConfigurationError: an optimizer or early stopping that does not fit model and graph.
    """

    def __init__(self, model: torch.nn.Module, job: Job, config: TrainerConfig) -> None:
        self.model, self.job, self.config = model, job, config
        self.state = self._start()
        self.resumed_after = self.state.epoch
        self._current: Weights = {}  # while the model holds its best ones

    @property
    def weights(self) -> Weights:
        """Parameters and buffers by name, sharing memory with the model."""
        return weights_of(self.model)

    @property
    def exhausted(self) -> bool:
        """Whether patience has run out."""
        return self.state.stopping.exhausted

    @property
    def done(self) -> bool:
        """Whether no epoch is left; the last one may still owe metrics, where training was resumed with fewer epochs."""
        return self.state.epoch >= self.config.epochs or self.exhausted

    @property
    def lacks_metrics(self) -> bool:
        """Whether the last epoch has none yet."""
        return "metrics" not in self.state.history[-1]

    @property
    def owes_metrics(self) -> bool:
        """Whether the last epoch's metrics are those of a pass to come."""
        return self.state.epoch > 0 and self._is_evaluated(self.state.epoch) and self.lacks_metrics

    @property
    def wants_evaluation(self) -> bool:
        """Whether the last epoch's metrics need a pass of their own."""
        later = self.job.plan.reuses_evaluation and self.state.epoch < self.config.epochs
        return self._is_evaluated(self.state.epoch) and self.lacks_metrics and not later

    # -- an epoch ----------------------------------------------------------------------------------------------------

    def settle(self, outcome: Outcome) -> None:
        """Make up for the evaluation of the last epoch, and its checkpoint, where it is the best or training stops."""
        counts_all = self.job.plan.reuses_evaluation and not self.job.plan.train_and_evaluate
        improved = self.remember(outcome.statistics if counts_all else outcome.evaluation)
        if improved or self.exhausted:
            self.keep(improved)

    def step(self, outcome: Outcome, seconds: float) -> None:
        """Take one step. A parameter that the loss does not reach keeps no gradient, and so its value, as in torch.

        Args:
            outcome: of a pass of training.
            seconds: that it took.

        Raises:
            DivergedError: the loss is not finite, or numbers of the step are not.
        """
        epoch, started = self.state.epoch + 1, time.perf_counter()
        # as autograd would have it: before the step, with dropout
        assert outcome.statistics is not None  # of a pass with a turn
        loss = metrics(self.job.loss, outcome.statistics)["train"]["loss"]
        _check_finite(epoch, loss)
        for name, parameter in self.model.named_parameters():
            gradient = outcome.gradients.get(name)
            parameter.grad = None if gradient is None else gradient.to(parameter).view_as(parameter)
        try:
            self.state.optimizer.step()
        except RuntimeError as error:  # torch's scalars overflow: a learning rate near float32's limit
            raise DivergedError(
                f"epoch {epoch}: the optimizer's step failed: {error}. Lower the learning rate"
            ) from error
        self.state.optimizer.zero_grad(set_to_none=True)
        taken = seconds + time.perf_counter() - started
        self.state.history.append({"epoch": epoch, "loss": loss, "train_seconds": taken, "eval_seconds": 0.0})
        self.state.epoch = epoch

    def remember(self, evaluation: np.ndarray | None, seconds: float = 0.0) -> bool:
        """Take in the metrics of the weights as they are; whether they are the best so far.

        Args:
            evaluation: statistics of all splits.
            seconds: that it took, if it was for this alone.

        Raises:
            DivergedError: a loss is not finite.
        """
        state, entry = self.state, self.state.history[-1]
        assert evaluation is not None  # of a pass that has counted all splits
        found = metrics(self.job.loss, evaluation)
        for split, figures in found.items():
            _check_finite(state.epoch, figures["loss"], f" over {split!r} after the step")
        entry["metrics"], entry["eval_seconds"] = found, entry["eval_seconds"] + seconds
        improved = state.stopping.update(state.epoch, found)
        if improved:
            state.best_weights = {name: tensor.clone() for name, tensor in self.weights.items()}
        return improved

    def keep(self, best: bool) -> None:
        """Write a checkpoint, if there are to be some."""
        if self.config.checkpoint_dir is None:
            return
        state = self.state
        checkpoint = Checkpoint(
            epoch=state.epoch,
            weights=self.weights,
            optimizer=state.optimizer.state_dict(),
            stopping=state.stopping.state(),
            best_weights=state.best_weights,
            history=state.history,
            identity=state.identity,
        )
        save_checkpoint(Path(self.config.checkpoint_dir), checkpoint, best=best)

    def _is_evaluated(self, epoch: int) -> bool:
        every = self.config.eval_every
        return epoch == self.config.epochs or (every > 0 and epoch % every == 0)

    # -- its begin and its end ---------------------------------------------------------------------------------------

    def _start(self) -> State:
        """A state to start from: new, or that of the checkpoint, which also sets the model's weights."""
        job, config = self.job, self.config
        trainable = {name: tensor for name, tensor in self.model.named_parameters() if tensor.requires_grad}
        validation = job.graph.labels.labelled[SPLITS.index("val")]
        stopping = make_stopping(config.monitor, config.patience, job.loss.task, validation)
        state = State(config.optimizer.build(trainable), stopping, 0, {}, [])
        if config.checkpoint_dir is None:
            return state
        directory = Path(config.checkpoint_dir)
        state.identity = identity(job, config)
        checkpoint = load_checkpoint(directory, state.identity) if config.resume else None
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

    def restore_best(self) -> None:
        """Have the model hold its best weights, if there was an evaluation, until it goes on."""
        if self.state.best_weights:
            self._current = self._current or {name: tensor.clone() for name, tensor in self.weights.items()}
            self._restore(self.state.best_weights)

    def go_on(self) -> None:
        """Have the model hold the weights of the last epoch again."""
        if self._current:
            self._restore(self._current)
            self._current = {}

    @property
    def best(self) -> Mapping[str, Any]:
        """The best epoch's entry."""
        entry: Mapping[str, Any] = self.state.history[self.state.stopping.best_epoch - 1]
        return entry

    def _restore(self, weights: Weights) -> None:
        with torch.no_grad():
            for name, tensor in self.weights.items():
                tensor.copy_(weights[name])


def weights_of(model: torch.nn.Module) -> Weights:
    """Parameters and buffers by name, sharing memory with the model."""
    return {name: tensor.detach() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}


def _check_finite(epoch: int, loss: float, where: str = "") -> None:
    if not math.isfinite(loss):
        raise DivergedError(
            f"epoch {epoch}: the loss is {loss}{where}. Training diverged: lower the learning rate, or scale the features"
        )
