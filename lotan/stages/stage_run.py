"""A run of a stage on a chunk, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from lotan.stages.chunk import Chunk, Parameters, Places, Saved
from lotan.stages.randomness import Randomness
from planner.physical import Mode

NO_DRAWS = Randomness(seed=0, epoch=0)
"""The randomness of a run whose stage has no random operator, as in every evaluation."""


@dataclass(frozen=True, eq=False)
class StageRun:
    """A run of a stage on a chunk: the mode, the chunk and all other arguments.

    The mode says what comes back in the `StageResult`:

    - "forward": the outputs, and with `keep` also what spares the backward run a second forward run.
    - "backward": the gradients of inputs and parameters, given those of the outputs. It runs forward again if `saved` is None.
    - "turn": the last stage forward, its loss over the training rows, and at once all gradients; the statistics of the
      splits that the stage counts.
    - "evaluate": the last stage to its statistics over all splits.
    - "predict": the outputs, without random numbers or gradients.
    """

    mode: Mode
    chunk: Chunk
    parameters: Parameters  # by name: the stage's, and perhaps others
    randomness: Randomness = NO_DRAWS
    output_gradients: Mapping[str, Tensor] = field(default_factory=dict)  # by StageOutput.value, [rows, *shape]
    keep: bool = False  # True makes a forward run keep what its backward reads
    saved: Saved | None = None  # what the forward run of this backward has kept
    into: Places = field(default_factory=dict)  # memory for rows that come back, by value: [rows, *shape]
    sums: Places | None = None  # by parameter: has its gradient added to it; None: gradients have memory of their own

    @property
    def emits(self) -> bool:
        """True if the run returns the stage's outputs."""
        return self.mode in ("forward", "predict")

    @property
    def differentiates(self) -> bool:
        """True if the run returns gradients."""
        return self.mode in ("backward", "turn")

    @property
    def counts(self) -> bool:
        """True if the run returns statistics."""
        return self.mode in ("turn", "evaluate")


@dataclass(frozen=True, eq=False)
class StageResult:
    """The result of a run of a stage. The run's mode determines which fields it has."""

    outputs: Mapping[str, Tensor] = field(default_factory=dict)  # by StageOutput.value, [rows, *shape]
    saved: Saved | None = None  # of a forward run that was to keep something
    # By StageInput.value: rows like the input's, or one for each edge (see `StageProgram`).
    input_gradients: Mapping[str, Tensor] = field(default_factory=dict)
    parameter_gradients: Mapping[str, Tensor] = field(default_factory=dict)  # by name, summed over the chunk
    # float64 [splits, k], zero for splits that are not counted, see `lotan.stages.metrics`; of a batch [models, splits, k]
    statistics: np.ndarray | None = None
