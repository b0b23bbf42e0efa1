"""Runs a stage on chunks: forward, backward, or in a turn, which is the last stage's forward, loss and backward at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from torch import Tensor

from lotan.errors import StageError
from lotan.stages.autograd import AutogradStage
from lotan.stages.chunk import NOWHERE, Chunk, Parameters, Places, Saved, StageGradients, Terms
from lotan.stages.flat import FlatStage
from lotan.stages.known import Unknown
from lotan.stages.metrics import loss_gradient, statistics
from lotan.stages.randomness import Randomness
from lotan.stages.saved_values import Memory
from planner.physical import Stage
from planner.spec import LossSpec

_NO_DRAWS = Randomness(seed=0, epoch=0)
"""The randomness of evaluation, whose stages have no random operator."""


class StageProgram:
    """A stage that is compiled once and runs on any number of chunks, in several threads if needed.

    Stages of known calls run as a flat list of kernels, and all others through autograd: their numbers are equal to
    rounding. In the methods, `into` is memory for rows, [rows, *shape] by value. The gradients of parameters are added
    to the tensors in `sums`.

    Args:
        stage: The stage to run.
        source_gradients: "summed" returns one gradient row for each source row of a chunk, "per_edge" one per edge.
        flat: False to run known calls through autograd too.
        memory: The memory for saved values, which stages may share; None: memory of its own.

    Raises:
        StageError: If a call is not allowed, or reads a value that no call made.
    """

    def __init__(
        self,
        stage: Stage,
        source_gradients: Literal["summed", "per_edge"] = "summed",
        flat: bool = True,
        memory: Memory | None = None,
    ) -> None:
        self.stage = stage
        known = _known(stage, memory) if flat else None
        self._body: FlatStage | AutogradStage = known or AutogradStage(stage, source_gradients)

    @property
    def flat(self) -> bool:
        """True if all calls are known."""
        return isinstance(self._body, FlatStage)

    @property
    def some_flat(self) -> bool:
        """True if all calls are known; for models side by side, if those of some model are."""
        return self.flat

    @property
    def rereads(self) -> frozenset[str]:
        """The inputs that a backward reads even if its forward was saved."""
        return self._body.rereads

    @property
    def terms(self) -> Terms:
        """The terms on which forward runs are saved, as the plan says. Autograd's graphs cannot go to a file."""
        return Terms(self.flat and self.stage.overflow == "file", self.stage.worth)

    def forward(
        self,
        chunk: Chunk,
        parameters: Parameters,
        randomness: Randomness,
        keep: bool = False,
        into: Places = NOWHERE,
    ) -> tuple[dict[str, Tensor], Saved | None]:
        """Return the outputs by StageOutput.value, [rows, *shape]; with `keep`, also the values that save backward a rerun."""
        if keep:
            return self._body.record(chunk, parameters, randomness, into)
        return self._body.run(chunk, parameters, randomness, into), None

    def backward(
        self,
        chunk: Chunk,
        parameters: Parameters,
        randomness: Randomness,
        output_gradients: Mapping[str, Tensor],
        saved: Saved | None = None,
        into: Places = NOWHERE,
        sums: Places | None = None,
    ) -> StageGradients:
        """Return the gradients of inputs and parameters, given those of the outputs. If nothing was saved, run forward again."""
        return self._body.vjp(chunk, parameters, randomness, output_gradients, saved, into, sums)

    def turn(
        self,
        chunk: Chunk,
        parameters: Parameters,
        randomness: Randomness,
        into: Places = NOWHERE,
        sums: Places | None = None,
    ) -> tuple[np.ndarray, StageGradients]:
        """Run the last stage forward, compute its loss over the training rows, and run it backward at once.

        Returns:
            The statistics of the splits that the stage counts (float64 [splits, k], zero for other splits), and the
            gradients.
        """
        label, split, loss = self._targets(chunk)
        counted = []

        def gradient(logits: Tensor) -> Tensor:
            counted.append(statistics(loss, logits, label, split, self.stage.counts))
            return loss_gradient(loss, logits, label, split)

        found = self._body.turn(chunk, parameters, randomness, gradient, into, sums)
        return counted[0], found

    def evaluate(self, chunk: Chunk, parameters: Parameters) -> np.ndarray:
        """Return the statistics of the last stage. float64 [splits, k], see lotan.stages.metrics."""
        label, split, loss = self._targets(chunk)
        (logits,) = self.predict(chunk, parameters).values()
        return statistics(loss, logits, label, split)

    def predict(self, chunk: Chunk, parameters: Parameters, into: Places = NOWHERE) -> dict[str, Tensor]:
        """Return the stage's outputs, without random numbers or gradients."""
        return self._body.run(chunk, parameters, _NO_DRAWS, into)

    def _targets(self, chunk: Chunk) -> tuple[Tensor, Tensor, LossSpec]:
        if self.stage.loss is None or chunk.label is None or chunk.split is None:
            raise StageError(f"stage {self.stage.name}: has no loss, or the chunk came without label or split")
        return chunk.label, chunk.split, self.stage.loss


def _known(stage: Stage, memory: Memory | None) -> FlatStage | None:
    try:
        return FlatStage(stage, memory)
    except Unknown:
        return None
