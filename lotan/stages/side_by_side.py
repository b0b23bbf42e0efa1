"""The program that runs the stages of a model batch side by side, each on its own model's numbers of every row.

Each stage runs as it would alone: on rows of its own, in aligned memory, by the same kernels. A model in a batch therefore
has the same bits as the model alone. The models share the rows that travel and all sums over edges. One batched product
for all models would be another kernel with another order of sums: torch does not promise equal bits between `bmm` and
`mm`, or between products of different widths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
import torch
from torch import Tensor

from lotan.stages.chunk import Chunk, Parameters, Places, Saved, SavedTogether, Terms
from lotan.stages.program import StageProgram
from lotan.stages.saved_values import Memory
from lotan.stages.stage_run import StageResult, StageRun
from planner.physical import Part, SourceGradients, Stage, StageInput, StageOutput, of_model


@dataclass(frozen=True)
class _Own:
    """A part, its program, and the places of its numbers in whole rows, which are None for values that all parts read whole."""

    part: Part
    program: StageProgram
    # the input of the whole, the input of the part, and the columns
    inputs: Sequence[tuple[StageInput, StageInput, slice | None]]
    outputs: Sequence[tuple[StageOutput, StageOutput, slice]]
    names: Mapping[str, str]  # the batch's names of parameters, by the model's own names

    def chunk(self, chunk: Chunk) -> Chunk:
        """Return the chunk with the model's own rows, as far as the chunk has any of them."""
        sparse = {
            own.value: chunk.sparse[whole.value]
            for whole, own, _ in self.inputs
            if whole.value in chunk.sparse and self.program.flat
        }
        values = {
            own.value: chunk.values[whole.value] if columns is None else _rows(chunk.values[whole.value], columns, own)
            for whole, own, columns in self.inputs
            if whole.value in chunk.values and own.value not in sparse
        }
        return replace(chunk, values=values, sparse=sparse)

    def run(self, run: StageRun, saved: Saved | None) -> StageRun:
        """Return the run of the model's own program, from the whole's run and the values that the model's forward run kept."""
        gradients = {
            output.value: _rows(run.output_gradients[whole.value], columns, output)
            for whole, output, columns in self.outputs
            if whole.value in run.output_gradients
        }
        return StageRun(
            run.mode,
            self.chunk(run.chunk),
            self.parameters(run.parameters),
            run.randomness.of(self.part.model),
            gradients,
            run.keep,
            saved,
            sums=self.sums(run.sums),
        )

    def parameters(self, named: Parameters) -> Parameters:
        """Return the model's parameters by the model's own names."""
        return {own: named[name] for own, name in self.names.items()}

    def named(self, own: Parameters) -> dict[str, Tensor]:
        """Return tensors by the batch's names."""
        return {self.names[name]: tensor for name, tensor in own.items()}

    def sums(self, sums: Places | None) -> Places | None:
        """Return the sums for the model's own parameters, by its own names."""
        if sums is None:
            return None
        return {p.name: sums[self.names[p.name]] for p in self.part.stage.parameters if p.trainable}


class SideBySide:
    """A stage with parts as a program, with the methods of `StageProgram`.

    Args:
        stage: the stage.
        source_gradients: "summed" or "per_edge", as in `StageProgram`.
        memory: memory for the values that a forward run keeps, as in `StageProgram`.
    """

    def __init__(
        self,
        stage: Stage,
        source_gradients: SourceGradients = "summed",
        memory: Memory | None = None,
    ) -> None:
        self.stage = stage
        programs: dict[Stage, StageProgram] = {}
        for part in stage.parts:
            if part.stage not in programs:
                programs[part.stage] = StageProgram(part.stage, source_gradients, memory=memory)
        self._parts = [
            _Own(part, programs[part.stage], inputs, outputs, _names(part))
            for part, inputs, outputs in zip(stage.parts, _inputs(stage), _outputs(stage), strict=True)
        ]

    @property
    def flat(self) -> bool:
        """True if all parts run as flat lists of kernels, because their calls are known ones."""
        return all(own.program.flat for own in self._parts)

    @property
    def some_flat(self) -> bool:
        """True if all calls of some part are known."""
        return any(own.program.flat for own in self._parts)

    @cached_property
    def rereads(self) -> frozenset[str]:
        """The inputs that the backward of some part reads although its forward was saved."""
        return frozenset(
            whole.value for part in self._parts for whole, own, _ in part.inputs if own.value in part.program.rereads
        )

    @property
    def terms(self) -> Terms:
        """The terms on which forward runs are kept."""
        return Terms(self.flat and self.stage.overflow == "file", self.stage.worth)

    def run(self, run: StageRun) -> StageResult:
        """Run each part on its own rows, as `StageProgram.run` does."""
        kept = run.saved.parts if isinstance(run.saved, SavedTogether) else [None] * len(self._parts)
        together = _Together(self.stage, run)
        for own, saved in zip(self._parts, kept, strict=True):
            together.add(own, own.program.run(own.run(run, saved)))
        return together.result()


class _Together:
    """The results of all parts' runs together."""

    def __init__(self, stage: Stage, run: StageRun) -> None:
        self._stage, self._run = stage, run
        self._outputs = {o.value: self._place(o, 1 if o.few else None) for o in stage.outputs} if run.emits else {}
        self._saved: list[Saved | None] = []
        self._inputs: dict[str, list[Tensor]] = {i.value: [] for i in stage.inputs if i.needs_gradient}
        self._parameters: dict[str, Tensor] = {}
        self._counted: dict[int, np.ndarray] = {}

    def add(self, own: _Own, found: StageResult) -> None:
        """Add the result of the next part."""
        if self._run.emits:
            _put(self._outputs, found.outputs, own)
            self._saved.append(found.saved)
        if self._run.differentiates:
            for whole, of_part, _ in own.inputs:
                if whole.needs_gradient:
                    rows = found.input_gradients[of_part.value]
                    self._inputs[whole.value].append(rows.reshape(rows.shape[0], -1))
            self._parameters.update(own.named(found.parameter_gradients))
        if found.statistics is not None:
            self._counted[own.part.model] = found.statistics

    def result(self) -> StageResult:
        """Return rows side by side, and statistics [models, splits, k], which are zero for models of other stages."""
        run = self._run
        return StageResult(
            self._outputs,
            SavedTogether(self._saved) if run.keep else None,
            {i.value: self._joined(i) for i in self._stage.inputs if i.needs_gradient} if run.differentiates else {},
            self._parameters if run.sums is None else run.sums,
            self._statistics() if run.counts else None,
        )

    def _place(self, one: StageInput | StageOutput, rows: int | None = None) -> Tensor:
        """Return memory for a value of the whole, which is the caller's if there is some."""
        place = self._run.into.get(one.value)
        return torch.empty(self._run.chunk.rows if rows is None else rows, *one.shape) if place is None else place

    def _joined(self, whole: StageInput) -> Tensor:
        """Return the gradient of an input. The gradient of a source has other rows than the chunk."""
        parts = self._inputs[whole.value]
        rows = parts[0].shape[0]
        place = self._place(whole, rows)
        torch.cat(parts, 1, out=place.view(rows, -1))
        return place

    def _statistics(self) -> np.ndarray:
        found = np.zeros((self._stage.models, *next(iter(self._counted.values())).shape))
        for model, sums in self._counted.items():
            found[model] = sums
        return found


def _names(part: Part) -> dict[str, str]:
    return {p.name: of_model(part.model, p.name) for p in part.stage.parameters}


def _inputs(stage: Stage) -> Iterator[list[tuple[StageInput, StageInput, slice | None]]]:
    begins = [0] * len(stage.inputs)
    for part in stage.parts:
        found: list[tuple[StageInput, StageInput, slice | None]] = []
        for place, (whole, own) in enumerate(zip(stage.inputs, part.stage.inputs, strict=True)):
            end = begins[place] + own.width
            found.append((whole, own, None if whole.width == own.width else slice(begins[place], end)))
            begins[place] = end
        yield found


def _outputs(stage: Stage) -> Iterator[list[tuple[StageOutput, StageOutput, slice]]]:
    begins = [0] * len(stage.outputs)
    for part in stage.parts:
        found = []
        for place, (whole, own) in enumerate(zip(stage.outputs, part.stage.outputs, strict=True)):
            end = begins[place] + prod(own.shape)
            found.append((whole, own, slice(begins[place], end)))
            begins[place] = end
        yield found


def _rows(whole: Tensor, columns: slice, own: StageInput | StageOutput) -> Tensor:
    """Return a model's numbers of all rows as one contiguous tensor, [rows, *shape]."""
    rows = whole.reshape(whole.shape[0], -1)[:, columns]
    return rows.contiguous().view(-1, *own.shape)


def _put(outputs: Mapping[str, Tensor], rows: Mapping[str, Tensor], own: _Own) -> None:
    for whole, of_part, columns in own.outputs:
        made = rows[of_part.value]
        outputs[whole.value].view(made.shape[0], -1)[:, columns] = made.reshape(made.shape[0], -1)
