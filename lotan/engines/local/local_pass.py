"""What a pass on the local engine gathers beside columns, and which columns it need not hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from lotan.engines.base import Pass
from lotan.stages.chunk import Saved
from lotan.stages.programs import Program
from planner.physical import Mode, PipeStep, PropagateStep, Step, reads


class LocalPass:
    """What a pass gathers beside columns."""

    def __init__(self, steps: Sequence[Step], a_pass: Pass, programs: Mapping[str, Program]) -> None:
        self.parameters = {name: tensor.detach() for name, tensor in a_pass.parameters.items()}
        self.randomness = a_pass.randomness
        # The stages that run backward in this pass keep what backward reads of their forward run until then.
        self.keeping = {step.stage for step in steps if isinstance(step, PipeStep) and step.mode == "backward"}
        self.lazy = read_once(steps, programs)
        self.saved: dict[str, list[Saved | None]] = {}  # by stage, one for each chunk
        self.gradients: dict[str, Tensor] = {}
        self.counted: dict[Mode, np.ndarray] = {}  # statistics of the turn, and of the evaluation

    def count(self, mode: Mode, statistics: np.ndarray) -> None:
        """Add a stage's statistics; those of the models of a batch come from several."""
        earlier = self.counted.get(mode)
        self.counted[mode] = statistics if earlier is None else earlier + statistics

    def commit(self, gradients: Mapping[str, Tensor]) -> None:
        """Add a stage's parameter gradients; a parameter used in several stages has the sum of all."""
        for name, gradient in gradients.items():
            earlier = self.gradients.get(name)
            self.gradients[name] = gradient if earlier is None else earlier + gradient


def read_once(steps: Sequence[Step], programs: Mapping[str, Program]) -> frozenset[str]:
    """The outputs of propagates whose rows are computed just once if nobody computes them before they are read.

    All their readers are stages that run in chunks, and but for a backward that has kept what it needs, there is one; and
    it runs on all rows that they have.
    """
    read: Counter[str] = Counter()
    levels = {step.output.name: step.output.within for step in steps if isinstance(step, PropagateStep)}
    for step in steps:
        if isinstance(step, PipeStep):
            read.update({name: 2 for name in reads(step) if levels.get(name, step.within) != step.within})
        if not isinstance(step, PipeStep) or programs[step.stage].stage.edge_sets:
            read.update(dict.fromkeys(reads(step), 2))
        elif step.mode == "backward":
            read.update(name for gradient in step.gradients for name in gradient.columns)
            rereads = programs[step.stage].rereads
            read.update(i.column for i in programs[step.stage].stage.inputs if i.value in rereads)
        else:
            read.update(reads(step))
    return frozenset(name for name in levels if read[name] == 1)
