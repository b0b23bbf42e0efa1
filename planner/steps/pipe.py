"""Pipe, which runs a stage over all vertices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from planner.estimate import BYTES, column_bytes
from planner.layout import Layout
from planner.physical import Column, Mode, Plan, collection_name, gradient_name
from planner.statistics import Statistics
from planner.steps.backward import Backward, is_constant
from planner.steps.step import AtSources, Naming, Step

ASIDE = {"turn": ["loss"], "evaluate": ["metrics"]}
"""The results of a run that its label shows in place of columns, by mode."""


@dataclass(frozen=True)
class Gradients:
    """The gradient of one stage output: the columns whose sum it is, added in this order."""

    value: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class PipeStep(Step):
    """Runs a stage over all vertices: Graph Engine -> DL Engine -> Graph Engine, joined by vertex.

    Its `outputs` depend on the mode. In forward and predict they are the outputs of the stage. In turn and backward
    there is one for each input with needs_gradient: a column for a "vertex" input, a row for each chunk for a "total", and
    *contributions* to a GatherStep for a "source" input. `contributions` names the latter.

    Turn and backward also commit the gradients of the stage's parameters. Turn and evaluate commit loss and metrics.
    """

    stage: str
    mode: Mode
    inputs: tuple[str, ...]  # columns for the inputs that are no sources; "label" and "split" for turn and evaluate
    collections: tuple[str, ...]  # results of CollectSteps, for the inputs with role "source"
    gradients: tuple[Gradients, ...]  # for backward only
    outputs: tuple[Column, ...]
    contributions: tuple[str, ...] = ()  # names of the `outputs` that are contributions, not columns
    within: int | None = None  # level up to which it runs; None: on all vertices

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The names of its inputs and collections, and of the gradients of its outputs."""
        gradients = [name for gradient in self.gradients for name in gradient.columns]
        return tuple(dict.fromkeys([*self.inputs, *self.collections, *gradients]))

    @cached_property
    def makes(self) -> tuple[str, ...]:
        """The names of its outputs."""
        return tuple(column.name for column in self.outputs)

    @property
    def columns_made(self) -> tuple[Column, ...]:
        """The columns of its outputs."""
        return self.outputs

    @property
    def emits(self) -> bool:
        """True if it yields the stage's outputs, and not gradients of its inputs."""
        return self.mode in ("forward", "predict")

    @property
    def turns(self) -> bool:
        """True in the mode that computes the loss."""
        return self.mode == "turn"

    @property
    def label(self) -> str:
        """The stage and its mode, and the results of the run."""
        within = [] if self.within is None else [f"within={self.within}"]
        nothing = ["parameters only"] * (self.mode == "backward" and not self.outputs)
        yielded = [*ASIDE.get(self.mode, nothing), *self.makes]
        return f"Pipe({', '.join([self.stage, self.mode, *within])}) -> {', '.join(yielded)}"

    def up_to(self, level: int) -> Self:
        """Return the same run on the vertices up to a level."""
        outputs = tuple(replace(column, within=level) for column in self.outputs)
        return replace(self, within=level, outputs=outputs)

    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """Return the same run under other names."""
        return replace(
            self,
            stage=stage(self.stage),
            inputs=tuple(map(to, self.inputs)),
            collections=tuple(map(to, self.collections)),
            gradients=tuple(Gradients(one.value, tuple(map(to, one.columns))) for one in self.gradients),
            outputs=tuple(replace(column, name=to(column.name)) for column in self.outputs),
            contributions=tuple(map(to, self.contributions)),
        )

    def differentiate(self, backward: Backward) -> None:
        """Add the stage's backward, or its turn: from gradients of the stage's outputs to gradients of its inputs."""
        stage = backward.stages[self.stage]
        gradients = tuple(
            Gradients(output.value, tuple(backward.gradients[output.column]))
            for output in stage.outputs
            if output.column in backward.gradients
        )
        if self.mode != "turn" and not gradients:
            return
        outputs, contributions = [], []
        for value in stage.inputs:
            if is_constant(value.column) or not value.dtype.startswith("float"):
                continue
            name = gradient_name(value.value, stage.name)
            column = backward.column(value.column, value.shape, name=name)
            if value.role == "total":
                column = replace(column, within=None, few=True)
            outputs.append(column)
            if value.edges is not None:  # rows of sources
                contributions.append(name)
                backward.contributions[collection_name(value.edges, self.stage), value.column] = column
            else:
                backward.contribute(value.column, name)
        mode: Mode = "turn" if self.mode == "turn" else "backward"
        backward.add(
            replace(self, mode=mode, gradients=gradients, outputs=tuple(outputs), contributions=tuple(contributions))
        )

    def rows(self, statistics: Statistics) -> int:
        """Return the number of vertices that the stage runs on."""
        return statistics.rows_within(self.within)

    def bytes(self, statistics: Statistics, plan: Plan) -> int:
        """Return the bytes of its outputs."""
        return sum(column_bytes(column, statistics) for column in self.outputs)

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """Return the bytes of the columns that its stage reads at sources. Each run has them sent anew, in one JVM too."""
        if not self.collections:
            return 0.0
        inputs = (one for one in plan.stage(self.stage).inputs if one.role == "source")
        return sum({(one.edges, one.column): one.width * BYTES[one.dtype] for one in inputs}.values()) * others
