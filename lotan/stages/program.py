"""The program of a stage, which runs it on chunks in any mode."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from lotan.errors import StageError
from lotan.stages.autograd import AutogradStage
from lotan.stages.chunk import Chunk, Terms
from lotan.stages.flat import FlatStage
from lotan.stages.known import Unknown
from lotan.stages.metrics import loss_gradient, statistics
from lotan.stages.randomness import random_rows
from lotan.stages.saved_values import Memory
from lotan.stages.stage_run import StageResult, StageRun
from planner.loss import LossSpec
from planner.physical import SourceGradients, Stage
from planner.spec import SHOWN_KEY, SPLITS


class StageProgram:
    """A stage that is compiled once and runs on any number of chunks, in several threads if need be.

    Stages of known calls run as a flat list of kernels, all others through autograd: the same numbers, to rounding.

    Args:
        stage: the stage.
        source_gradients: "summed" for one gradient row for each source row of a chunk, "per_edge" for one for each edge.
        flat: if False, autograd runs known calls too.
        memory: memory for the values that a forward run keeps, which stages may share; None for memory of its own.

    Raises:
        StageError: If a call is not allowed, or reads a value that no call made.
    """

    def __init__(
        self,
        stage: Stage,
        source_gradients: SourceGradients = "summed",
        flat: bool = True,
        memory: Memory | None = None,
    ) -> None:
        self.stage = stage
        known = _known(stage, memory) if flat else None
        self._body: FlatStage | AutogradStage = known or AutogradStage(stage, source_gradients)

    @property
    def flat(self) -> bool:
        """True if the stage runs as a flat list of kernels, because all its calls are known ones."""
        return isinstance(self._body, FlatStage)

    @property
    def some_flat(self) -> bool:
        """True if at least one model of the stage runs so. For one model it is equal to `flat`."""
        return self.flat

    @property
    def rereads(self) -> frozenset[str]:
        """The inputs that backward reads although its forward was saved."""
        return self._body.rereads

    @property
    def terms(self) -> Terms:
        """The terms on which forward runs are kept, as the plan sets them. Autograd's graphs cannot be written to a file."""
        return Terms(self.flat and self.stage.overflow == "file", self.stage.worth)

    def run(self, run: StageRun) -> StageResult:
        """Run the stage on a chunk.

        Raises:
            StageError: an input, a parameter or a label is missing, or there is no such mode.
        """
        match run.mode:
            case "forward" | "predict":
                return self._body.forward(run)
            case "backward":
                return self._body.backward(run)
            case "turn":
                return self._turn(run)
            case "evaluate":
                loss, label, split, weight = self._targets(run.chunk)
                (logits,) = self._body.forward(run).outputs.values()
                return StageResult(statistics=statistics(loss, logits, label, split, weight))
        raise StageError(f"stage {self.stage.name}: there is no mode {run.mode!r}")

    def _turn(self, run: StageRun) -> StageResult:
        loss, label, split, weight = self._targets(run.chunk)
        if loss.shown is not None:  # vertices whose labels the model sees count in nothing
            drawn = random_rows(
                torch.zeros(len(split)), "chance", loss.shown, run.randomness, SHOWN_KEY, run.chunk.keys
            )
            split = split.masked_fill((drawn > 0) & (split == SPLITS.index("train")), -1)
        counted = []

        def gradient(logits: Tensor) -> Tensor:
            counted.append(statistics(loss, logits, label, split, weight, self.stage.counts))
            return loss_gradient(loss, logits, label, split, weight)

        return replace(self._body.turn(run, gradient), statistics=counted[0])

    def _targets(self, chunk: Chunk) -> tuple[LossSpec, Tensor, Tensor, Tensor | None]:
        loss = self.stage.loss
        if loss is None or chunk.label is None or chunk.split is None:
            raise StageError(f"stage {self.stage.name}: has no loss, or the chunk came without label or split")
        if not loss.vertex_weights:
            return loss, chunk.label, chunk.split, None
        if chunk.vertex_weight is None:
            raise StageError(f"stage {self.stage.name}: the chunk came without weights of vertices")
        return loss, chunk.label, chunk.split, chunk.vertex_weight.view(-1)


def _known(stage: Stage, memory: Memory | None) -> FlatStage | None:
    try:
        return FlatStage(stage, memory)
    except Unknown:
        return None
