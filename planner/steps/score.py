"""ScorePairs, the turn of a link task: it compares pairs of output rows, and hands back the gradient of these rows."""

from __future__ import annotations

from dataclasses import dataclass

from planner.estimate import BYTES, row_bytes
from planner.layout import Layout
from planner.physical import Column, Plan
from planner.statistics import Statistics
from planner.steps.backward import Backward
from planner.steps.step import AtSources, InputStep
from planner.traits import EngineTraits
from planner.work import Work, of_driver

GIVEN = "d_output"
"""The name of the column that holds the gradient of the model's output rows."""


@dataclass(frozen=True)
class ScoreStep(InputStep):
    """output[v] = the gradient, by input[v], of the loss over the pairs of this pass.

    The pairs and the decoder that scores them are not part of the plan: the run gives both to the engine. So the plan of a
    link task is the plan of its encoder.
    """

    input: str
    output: Column
    within: int | None = None  # level up to which rows take part in pairs; None: all

    @property
    def turns(self) -> bool:
        """True, because backward begins here."""
        return True

    @property
    def label(self) -> str:
        """The step's input and output."""
        within = "" if self.within is None else f", within={self.within}"
        return f"ScorePairs({self.input}{within}) -> loss, {self.output.name}"

    def differentiate(self, backward: Backward) -> None:
        """Add the step itself, whose output is the gradient of its input."""
        backward.add(self, of=self.input)

    def work(self, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> Work:
        """Return a read and a written number for each number of the rows, and on Spark the bytes that the driver takes and sends.

        The pairs are not known to the planner.
        """
        numbers = self.rows(statistics) * self.output.width
        way = of_driver(0 if traits.in_process else BYTES["float32"] * numbers)
        return Work(edge_values=2 * numbers) + way * 2

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Return the bytes of a row, which a shuffle brings from the driver to its vertex."""
        return row_bytes(self.output)
