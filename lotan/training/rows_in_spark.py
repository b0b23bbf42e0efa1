"""Training with learned rows that lie in Spark: the driver has the steps of the other parameters, and sees norms and counts.

Each partition's rows, and their state, are changed by the task that has their gradient. The model keeps its own copy of the
rows, which is that before the run until the run ends.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from lotan.borders import first_line
from lotan.engines.base import Engine
from lotan.engines.blocks.engine import BlocksEngine
from lotan.engines.blocks.trained_rows import TrainedRows
from lotan.planning.job import Job
from lotan.settings.config import TrainerConfig
from lotan.settings.row_steps import RowStep
from lotan.settings.row_wise import clip_norm
from lotan.training.learner import Learner, Weights

log = logging.getLogger(__name__)


class SparkRowsLearner(Learner):
    """A learner whose learned rows lie in Spark while it is `on` an engine.

    Args:
        model: The model, with the rows before the run, or before the epochs that are left.
        job: The job, with a plan for the blocks engine.
        config: The settings of the run.
    """

    def __init__(self, model: torch.nn.Module, job: Job, config: TrainerConfig) -> None:
        self._names = tuple(job.train.learned)
        self._rows: TrainedRows | None = None
        self._steps: dict[str, int] = {}  # the steps that each parameter has taken
        self._scale = 1.0  # of all gradients of a step
        super().__init__(model, job, config)

    @property
    def _kept(self) -> Weights:
        return {name: tensor for name, tensor in self.weights.items() if name not in self._names}

    @property
    def _in_spark(self) -> TrainedRows:
        assert self._rows is not None, "the learner is on no engine"
        return self._rows

    # -- an epoch ----------------------------------------------------------------------------------------------------

    def _clip(self, most: float) -> None:
        norms = [norm for name in self._names if (norm := self._in_spark.norm(name)) is not None]
        self._scale = clip_norm(self.model.parameters(), most, norms)

    def _take_step(self) -> None:
        for name, number in self._steps.items():
            step = self._step_of(name)
            if self._in_spark.update(name, step.name, step.numbers(number + 1, self._scale)):
                self._steps[name] = number + 1
        super()._take_step()

    def _step_of(self, name: str) -> RowStep:
        """Return the steps of a parameter, with the learning rate and the other arguments that it has now."""
        rows = self.model.get_parameter(name)
        groups = self.state.optimizer.param_groups
        return RowStep(self.config.optimizer, next(g for g in groups if any(one is rows for one in g["params"])))

    def remember(self, evaluation: np.ndarray | None, seconds: float = 0.0) -> bool:
        """Record the metrics of the current weights, see `Learner.remember`."""
        improved = super().remember(evaluation, seconds)
        if improved:
            self._in_spark.hold_best()
        return improved

    # -- its checkpoints ---------------------------------------------------------------------------------------------

    def _saved_weights(self) -> Weights:
        return self._kept | {name: self._in_spark.rows(name) for name in self._names}

    def _saved_best_weights(self) -> Weights:
        found = {name: self._in_spark.best(name) for name in self._names}
        return self.state.best_weights | {name: rows for name, rows in found.items() if rows is not None}

    def _optimizer_state(self) -> dict[str, Any]:
        found = super()._optimizer_state()
        for group in found["param_groups"]:
            for number, name in zip(group["params"], group["param_names"], strict=True):
                if name in self._steps and (state := self._state_of(name)):
                    found["state"][number] = state
        return found

    def _state_of(self, name: str) -> dict[str, torch.Tensor]:
        """Return the state of the rows of a parameter, as torch's optimizer holds it."""
        step, taken = self._step_of(name), self._steps[name]
        if not taken or not step.states:
            return {}
        state = dict(zip(step.states, self._in_spark.state(name), strict=True))
        return state if step.name == "SGD" else {"step": torch.tensor(float(taken)), **state}

    def _restore(self, weights: Weights) -> None:
        super()._restore(weights)
        with torch.no_grad():
            for name in self._names:
                if name in weights:
                    self.weights[name].copy_(weights[name])

    # -- its begin and its end ---------------------------------------------------------------------------------------

    @contextmanager
    def on(self, engine: Engine) -> Iterator[None]:
        """Let the rows lie in the Spark of an engine. At the end the model has those of the best epoch.

        After an error it has the rows of the last step, as it has the other parameters, if Spark still has them.
        """
        assert isinstance(engine, BlocksEngine)  # the job is planned for it
        self._rows = engine.trained_rows
        try:
            self._send(self._rows)
            try:
                yield
            except BaseException:
                self._bring_what_is_left(engine)
                raise
            self.state.best_weights = self._saved_best_weights()
        finally:
            if engine.stands:
                self._rows.close()
            self._rows = None

    def _send(self, to: TrainedRows) -> None:
        """Send the rows to Spark, with the state that a checkpoint has of them."""
        for name in self._names:
            rows, best = self.model.get_parameter(name), self.state.best_weights.pop(name, None)
            state: list[torch.Tensor | float] = []
            if rows.requires_grad:
                known = self.state.optimizer.state.pop(rows, {})
                state, self._steps[name] = _state_to_send(self._step_of(name), known)
            to.put(name, rows.detach(), state, best)

    def _bring_what_is_left(self, engine: BlocksEngine) -> None:
        """Give the model the rows of the last step, if Spark is there."""
        try:
            if engine.stands:
                self._restore(self._saved_weights())
        except Exception as error:  # the error that ends the run is on its way, and matters more
            log.warning("the model has the learned rows of before the run: %s", first_line(error))


def _state_to_send(step: RowStep, known: dict[str, Any]) -> tuple[list[torch.Tensor | float], int]:
    """Return the parts of the state of rows, and the steps that they have taken.

    Args:
        step: The steps of the rows.
        known: The state that torch's optimizer has of them.
    """
    taken = int(known["step"]) if "step" in known else int(known.get("momentum_buffer") is not None)
    return [known[part] if taken else step.first for part in step.states], taken
