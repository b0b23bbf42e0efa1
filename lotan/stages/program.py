"""The program of a stage, which runs it on chunks: forward, backward, and the last stage's turn."""

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
"""For evaluation, whose stages have no random operator."""


class StageProgram:
    """A stage that is compiled once and runs on any number of chunks, in several threads if need be.

    Stages of known calls run as a flat list of kernels, and all others through autograd. Both give the same numbers, up
    to rounding. Methods that take memory from the caller write rows to `into` (shape [rows, *shape], by value) and add
    the gradients of parameters to `sums`.

    Args:
        stage: the stage.
        source_gradients: "summed" for one gradient row for each source row of a chunk, "per_edge" for one for each edge.
        flat: if False, autograd runs known calls too.
        memory: memory for the values that a forward run keeps, which stages may share; None for memory of its own.

    Raises:
        StageError: a call is not allowed or reads a value that nothing made.
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
        """True if the calls of some model are known. For one model it is equal to `flat`."""
        return self.flat

    @property
    def rereads(self) -> frozenset[str]:
        """The inputs that backward reads although its forward was saved."""
        return self._body.rereads

    @property
    def terms(self) -> Terms:
        """The terms on which forward runs are kept, as the plan sets them. Autograd's graphs cannot be written to a file."""
        return Terms(self.flat and self.stage.overflow == "file", self.stage.worth)

    def forward(
        self,
        chunk: Chunk,
        parameters: Parameters,
        randomness: Randomness,
        keep: bool = False,
        into: Places = NOWHERE,
    ) -> tuple[dict[str, Tensor], Saved | None]:
        """Return the outputs by StageOutput.value, [rows, *shape], and with `keep` the values that save backward a rerun."""
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
        """Return the gradients of inputs and parameters for those of the outputs. Forward runs again if nothing was saved."""
        return self._body.vjp(chunk, parameters, randomness, output_gradients, saved, into, sums)

    def turn(
        self,
        chunk: Chunk,
        parameters: Parameters,
        randomness: Randomness,
        into: Places = NOWHERE,
        sums: Places | None = None,
    ) -> tuple[np.ndarray, StageGradients]:
        """Run the last stage forward, its loss over the training rows, and backward.

        Returns:
            The statistics of the splits that the stage counts (float64 [splits, k], other splits zero) and the gradients.
        """
        label, split, loss = self._targets(chunk)
        counted = []

        def gradient(logits: Tensor) -> Tensor:
            counted.append(statistics(loss, logits, label, split, self.stage.counts))
            return loss_gradient(loss, logits, label, split)

        found = self._body.turn(chunk, parameters, randomness, gradient, into, sums)
        return counted[0], found

    def evaluate(self, chunk: Chunk, parameters: Parameters) -> np.ndarray:
        """Return the statistics of the last stage, float64 [splits, k], as `lotan.stages.metrics` defines them."""
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
