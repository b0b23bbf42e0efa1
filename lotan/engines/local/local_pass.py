"""The results of a pass on the local engine, apart from columns, and the columns that need not be stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from torch import Tensor

from lotan.engines.base import Pass
from lotan.stages.chunk import Saved
from lotan.stages.programs import Program
from lotan.stages.spill_file import SpillFile
from planner.physical import Mode
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step


class LocalPass:
    """The parameters of a pass and its results, apart from columns.

    Args:
        steps: The steps of the pass.
        a_pass: The epoch, the parameters and the seed.
        programs: The programs of the plan's stages.
        file: The file for the values that forward runs save; None: they stay in memory.
        in_memory: The stages whose values stay in memory even if there is a file.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        a_pass: Pass,
        programs: Mapping[str, Program],
        file: SpillFile | None = None,
        in_memory: Collection[str] = (),
    ) -> None:
        self.parameters = {name: tensor.detach() for name, tensor in a_pass.parameters.items()}
        self.randomness = a_pass.randomness
        # Stages that run backward in this pass save values of their forward run until then.
        self.keeping = {step.stage for step in steps if isinstance(step, PipeStep) and step.mode == "backward"}
        self.file, self._in_memory = file, in_memory
        if file is not None:  # what autograd saves cannot be written: such a stage runs forward again
            self.keeping = {name for name in self.keeping if programs[name].flat or programs[name].stage.edge_sets}
        self.lazy = read_once(steps, programs)
        self.saved: dict[str, list[Saved | None]] = {}  # by stage, one entry per chunk
        self.gradients: dict[str, Tensor] = {}
        self.counted: dict[Mode, np.ndarray] = {}  # the statistics of the turn and of the evaluation

    def stowed(self, stage: str, saved: Saved | None) -> Saved | None:
        """Move what a stage's run saved to the file, if there is one and it does not stay in memory.

        None: it is not saved, and has to be computed again.
        """
        if saved is None or self.file is None or stage in self._in_memory or saved.stow(self.file):
            return saved
        saved.drop(self.file)
        return None

    def fetched(self, saved: Saved | None) -> Saved | None:
        """Read what a run saved back from the file, if there is one."""
        if saved is not None and self.file is not None:
            saved.fetch(self.file)
        return saved

    def count(self, mode: Mode, statistics: np.ndarray) -> None:
        """Add a stage's statistics. Several stages count the models of a batch."""
        earlier = self.counted.get(mode)
        self.counted[mode] = statistics if earlier is None else earlier + statistics

    def commit(self, gradients: Mapping[str, Tensor]) -> None:
        """Add a stage's parameter gradients. The gradient of a parameter that several stages use is the sum of theirs."""
        for name, gradient in gradients.items():
            earlier = self.gradients.get(name)
            self.gradients[name] = gradient if earlier is None else earlier + gradient


def read_once(steps: Sequence[Step], programs: Mapping[str, Program]) -> frozenset[str]:
    """Return the outputs of propagates whose rows would be computed only once if they were lazy.

    All their readers are stages that run in chunks. There is just one reader, apart from a backward that has saved what
    it needs, and it runs on all rows of the output.
    """
    read: Counter[str] = Counter()
    levels = {step.output.name: step.output.within for step in steps if isinstance(step, PropagateStep)}
    for step in steps:
        if isinstance(step, PipeStep):
            read.update({name: 2 for name in step.reads if levels.get(name, step.within) != step.within})
        if not isinstance(step, PipeStep) or programs[step.stage].stage.edge_sets:
            read.update(dict.fromkeys(step.reads, 2))
        elif step.mode == "backward":
            read.update(name for gradient in step.gradients for name in gradient.columns)
            rereads = programs[step.stage].rereads
            read.update(i.column for i in programs[step.stage].stage.inputs if i.value in rereads)
        else:
            read.update(step.reads)
    return frozenset(name for name in levels if read[name] == 1)
