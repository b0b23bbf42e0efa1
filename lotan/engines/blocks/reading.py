"""The readers of each column of a pass: they decide which columns are computed as they are read, or need not be sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from lotan.stages.programs import make_program
from planner.physical import Plan, Stage
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step
from planner.steps.total import TotalGradientStep

Spares = Mapping[str, frozenset[str]]
"""The columns and collections that a stage's backward reads only if its forward run was not saved, by stage."""


def find_spares(plan: Plan) -> dict[str, frozenset[str]]:
    """Return the spares of every stage of a plan."""
    return {stage.name: _spares(stage, make_program(stage, plan.source_gradients).rereads) for stage in plan.stages}


def _spares(stage: Stage, rereads: frozenset[str]) -> frozenset[str]:
    read = {i.column for i in stage.inputs if i.value in rereads or i.static}
    return frozenset(i.column for i in stage.inputs) - read


class Reading:
    """The readers of each column and collection of a pass.

    Args:
        steps: The steps of the pass.
        spares: The columns that each stage's backward may not need, see `Spares`.
    """

    def __init__(self, steps: Sequence[Step], spares: Spares) -> None:
        self._spares = spares
        pipes = [step for step in steps if isinstance(step, PipeStep)]
        self.reads = Counter(name for step in steps for name in step.reads)
        self.pipes = Counter(name for step in pipes for name in step.inputs + step.collections)
        self.pipes.subtract(name for step in pipes for name in self.spared(step))
        self.as_read = self._read_once(steps)
        whole = {name for step in pipes for name in step.collections}
        by_rows = [step for step in steps if isinstance(step, PipeStep | TotalGradientStep)]
        others = {name for step in steps if not isinstance(step, PipeStep | TotalGradientStep) for name in step.reads}
        # The columns that are read row by row alone, by tasks that have the same partition of them.
        self.by_rows = frozenset(name for step in by_rows for name in step.reads) - whole - others
        self._steps = steps

    def spared(self, step: PipeStep) -> frozenset[str]:
        """Return the columns that a pipe offers but does not send unless a worker asks for them."""
        return self._spares[step.stage] if step.mode == "backward" else frozenset()

    def _read_once(self, steps: Sequence[Step]) -> frozenset[str]:
        """Return the outputs of propagates that a single pipe reads row by row, and no other step."""
        read: Counter[str] = Counter()
        for step in steps:
            if isinstance(step, PipeStep):
                rows = set(step.reads) - set(step.collections)
                read.update(rows - self.spared(step))
            else:
                read.update(dict.fromkeys(step.reads, 2))
        whole = {name for step in steps if isinstance(step, PipeStep) for name in step.collections}
        made = [step.output.name for step in steps if isinstance(step, PropagateStep)]
        return frozenset(name for name in made if read[name] == 1 and name not in whole)

    def readers(self, names: Sequence[str]) -> list[PipeStep] | None:
        """Return the pipes that read these columns, directly or through sums that are computed as they are read.

        Return None if other steps read one of them too, because they may read it at any time.
        """
        found: list[PipeStep] = []
        for step in self._steps:
            read = set(names) & set(step.reads)
            if isinstance(step, PropagateStep) and read and step.output.name in self.as_read:
                found += self.readers([step.output.name]) or []
            elif isinstance(step, PipeStep) and read and not read & set(step.collections):
                if read - self.spared(step):
                    found.append(step)
            elif read:
                return None
        return [step for place, step in enumerate(found) if all(step is not other for other in found[:place])]
