"""Pipe: run a stage over all vertices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from planner.estimate import BYTES, column_bytes
from planner.layout import Layout
from planner.physical import Column, Mode, Plan, collection_name, gradient_name
from planner.statistics import Statistics
from planner.steps.backward import CONSTANTS, Backward
from planner.steps.step import AtSources, Naming, Step

ASIDE = {"turn": ["loss"], "evaluate": ["metrics"]}
"""What a run commits beside columns, for its label."""


@dataclass(frozen=True)
class Gradients:
    """The gradient of one stage output: the columns whose sum it is, added in this order."""

    value: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class PipeStep(Step):
    """Run a stage over all vertices: Graph Engine -> DL Engine -> Graph Engine, joined by vertex.

    outputs: forward and predict: the stage's outputs. turn and backward: for each input with needs_gradient, its gradient;
    of a "vertex" input a column, of a "source" input *contributions* for a GatherStep (`contributions` names those).
    turn and backward also commit the gradients of the stage's parameters; turn and evaluate commit loss and metrics.
    """

    stage: str
    mode: Mode
    inputs: tuple[str, ...]  # columns for the inputs with role "vertex" (plus "label", "split" for turn and evaluate)
    collections: tuple[str, ...]  # made by CollectSteps, for the inputs with role "source"
    gradients: tuple[Gradients, ...]  # backward only
    outputs: tuple[Column, ...]
    contributions: tuple[str, ...] = ()  # those of `outputs` that are contributions, not columns
    within: int | None = None  # the level up to which it runs

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Its inputs and collections, and the gradients of its outputs."""
        gradients = [name for gradient in self.gradients for name in gradient.columns]
        return tuple(dict.fromkeys([*self.inputs, *self.collections, *gradients]))

    @cached_property
    def makes(self) -> tuple[str, ...]:
        """The names of its outputs."""
        return tuple(column.name for column in self.outputs)

    @property
    def columns_made(self) -> tuple[Column, ...]:
        """Its outputs."""
        return self.outputs

    @property
    def emits(self) -> bool:
        """Whether it yields the stage's outputs, not gradients of its inputs."""
        return self.mode in ("forward", "predict")

    @property
    def label(self) -> str:
        """The stage and its mode, and what the run yields."""
        within = [] if self.within is None else [f"within={self.within}"]
        nothing = ["parameters only"] * (self.mode == "backward" and not self.outputs)
        yielded = [*ASIDE.get(self.mode, nothing), *self.makes]
        return f"Pipe({', '.join([self.stage, self.mode, *within])}) -> {', '.join(yielded)}"

    def up_to(self, level: int) -> Self:
        """The same run on the vertices up to a level."""
        outputs = tuple(replace(column, within=level) for column in self.outputs)
        return replace(self, within=level, outputs=outputs)

    def renamed(self, to: Naming, stage: Naming = str) -> Self:
        """The same run under other names."""
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
        """Add the stage's backward, or its turn: gradients of the stage's outputs to gradients of its inputs."""
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
            if value.column in CONSTANTS or not value.dtype.startswith("float"):
                continue
            name = gradient_name(value.value, stage.name)
            column = backward.column(value.column, value.shape, name=name)
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
        """The vertices that the stage runs on."""
        return statistics.rows_within(self.within)

    def bytes(self, statistics: Statistics, plan: Plan) -> int:
        """Bytes of its outputs."""
        return sum(column_bytes(column, statistics) for column in self.outputs)

    def bytes_for_a_source(self, plan: Plan, layout: Layout, others: float, brought: set[AtSources]) -> float:
        """The columns that its stage reads at sources: each run has them brought anew, inside one JVM too."""
        if not self.collections:
            return 0.0
        inputs = (one for one in plan.stage(self.stage).inputs if one.role == "source")
        return sum({(one.edges, one.column): one.width * BYTES[one.dtype] for one in inputs}.values()) * others
