"""Runs the stages of a model batch side by side: each model's own stage, on its own numbers of every row.

Each model runs as if it were alone: on rows of its own, in aligned memory, by the same kernels. So it has the same bits
in a batch as alone, whatever the other models are. The models share the rows that travel, and all sums over edges.

(A single batched product for all models would be another kernel that sums in another order. torch does not promise
equal bits between `bmm` and `mm`, nor between products of different widths.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lotan.stages.chunk import NOWHERE, Chunk, Parameters, Places, Saved, SavedTogether, StageGradients, Terms
from lotan.stages.program import StageProgram
from lotan.stages.randomness import Randomness
from lotan.stages.saved_values import Memory
from planner.physical import Part, Stage, StageInput, StageOutput, of_model


@dataclass(frozen=True)
class _Own:
    """A part, its program, and the columns of its numbers in the rows of the whole; None if all parts read the whole value."""

    part: Part
    program: StageProgram
    # the input of the whole, the input of the part, and the columns
    inputs: Sequence[tuple[StageInput, StageInput, slice | None]]
    outputs: Sequence[tuple[StageOutput, StageOutput, slice]]

    def chunk(self, chunk: Chunk) -> Chunk:
        """Return the chunk with the model's own rows, if the chunk has such rows."""
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
        return Chunk(chunk.keys, values, chunk.edges, chunk.label, chunk.split, sparse)

    def given(
        self, chunk: Chunk, parameters: Parameters, randomness: Randomness
    ) -> tuple[Chunk, Parameters, Randomness]:
        """Return the chunk, the parameters and the randomness that the model's program runs with."""
        return self.chunk(chunk), self.parameters(parameters), randomness.of(self.part.model)

    def parameters(self, named: Parameters) -> Parameters:
        """Return the model's parameters, by the model's own names."""
        return {p.name: named[of_model(self.part.model, p.name)] for p in self.part.stage.parameters}

    def named(self, own: Parameters) -> dict[str, Tensor]:
        """Return tensors of the model, by the batch's names."""
        return {of_model(self.part.model, name): tensor for name, tensor in own.items()}

    def sums(self, sums: Places | None) -> Places | None:
        """Return the sums of the model's parameters, by the model's own names."""
        if sums is None:
            return None
        trained = [p.name for p in self.part.stage.parameters if p.trainable]
        return {name: sums[of_model(self.part.model, name)] for name in trained}


class SideBySide:
    """A stage with parts, as a program with the methods of `StageProgram`.

    Args:
        stage: The stage to run.
        source_gradients: "summed" or "per_edge", see `StageProgram`.
        memory: The memory for saved values, which stages may share; None: memory of its own.
    """

    def __init__(
        self,
        stage: Stage,
        source_gradients: Literal["summed", "per_edge"] = "summed",
        memory: Memory | None = None,
    ) -> None:
        self.stage = stage
        programs: dict[Stage, StageProgram] = {}
        for part in stage.parts:
            if part.stage not in programs:
                programs[part.stage] = StageProgram(part.stage, source_gradients, memory=memory)
        self._parts = [
            _Own(part, programs[part.stage], inputs, outputs)
            for part, inputs, outputs in zip(stage.parts, _inputs(stage), _outputs(stage), strict=True)
        ]

    @property
    def flat(self) -> bool:
        """True if all calls of all parts are known."""
        return all(own.program.flat for own in self._parts)

    @property
    def some_flat(self) -> bool:
        """True if all calls of some part are known."""
        return any(own.program.flat for own in self._parts)

    @cached_property
    def rereads(self) -> frozenset[str]:
        """The inputs that some part's backward reads even if its forward was saved."""
        return frozenset(
            whole.value for part in self._parts for whole, own, _ in part.inputs if own.value in part.program.rereads
        )

    @property
    def terms(self) -> Terms:
        """The terms on which forward runs are saved."""
        return Terms(self.flat and self.stage.overflow == "file", self.stage.worth)

    def forward(
        self,
        chunk: Chunk,
        parameters: Parameters,
        randomness: Randomness,
        keep: bool = False,
        into: Places = NOWHERE,
    ) -> tuple[dict[str, Tensor], Saved | None]:
        """Run forward, as `StageProgram.forward` does."""
        outputs, saved = self._outputs(chunk.rows, into), []
        for own in self._parts:
            rows, kept = own.program.forward(*own.given(chunk, parameters, randomness), keep)
            _put(outputs, rows, own)
            saved.append(kept)
        return outputs, SavedTogether(saved) if keep else None

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
        """Run backward, as `StageProgram.backward` does."""
        kept = saved.parts if isinstance(saved, SavedTogether) else [None] * len(self._parts)
        found = _Gradients(self.stage, into)
        for own, of_part in zip(self._parts, kept, strict=True):
            given = {
                output.value: _rows(output_gradients[whole.value], columns, output)
                for whole, output, columns in own.outputs
                if whole.value in output_gradients
            }
            mine = own.given(chunk, parameters, randomness)
            found.add(own, own.program.backward(*mine, given, of_part, sums=own.sums(sums)))
        return found.together(sums)

    def turn(
        self,
        chunk: Chunk,
        parameters: Parameters,
        randomness: Randomness,
        into: Places = NOWHERE,
        sums: Places | None = None,
    ) -> tuple[np.ndarray, StageGradients]:
        """Run forward and backward, as `StageProgram.turn` does.

        The statistics are float64 [models, splits, k], and zero for models of other stages.
        """
        counted, found = {}, _Gradients(self.stage, into)
        for own in self._parts:
            mine = own.given(chunk, parameters, randomness)
            counted[own.part.model], gradients = own.program.turn(*mine, sums=own.sums(sums))
            found.add(own, gradients)
        return self._statistics(counted), found.together(sums)

    def evaluate(self, chunk: Chunk, parameters: Parameters) -> np.ndarray:
        """Return the statistics, as `StageProgram.evaluate` does, in the shape of `turn`."""
        return self._statistics(
            {own.part.model: own.program.evaluate(own.chunk(chunk), own.parameters(parameters)) for own in self._parts}
        )

    def predict(self, chunk: Chunk, parameters: Parameters, into: Places = NOWHERE) -> dict[str, Tensor]:
        """Return the outputs, as `StageProgram.predict` does."""
        outputs = self._outputs(chunk.rows, into)
        for own in self._parts:
            _put(outputs, own.program.predict(own.chunk(chunk), own.parameters(parameters)), own)
        return outputs

    def _statistics(self, counted: Mapping[int, np.ndarray]) -> np.ndarray:
        found = np.zeros((self.stage.models, *next(iter(counted.values())).shape))
        for model, sums in counted.items():
            found[model] = sums
        return found

    def _outputs(self, rows: int, into: Places) -> dict[str, Tensor]:
        return {o.value: into[o.value] if o.value in into else torch.empty(rows, *o.shape) for o in self.stage.outputs}


class _Gradients:
    """The gradients that the parts' backward runs yield, put together."""

    def __init__(self, stage: Stage, into: Places) -> None:
        self._stage, self._into = stage, into
        self._inputs: dict[str, list[Tensor]] = {i.value: [] for i in stage.inputs if i.needs_gradient}
        self._parameters: dict[str, Tensor] = {}

    def add(self, own: _Own, found: StageGradients) -> None:
        """Add the gradients of the next part."""
        for whole, of_part, _ in own.inputs:
            if whole.needs_gradient:
                rows = found.inputs[of_part.value]
                self._inputs[whole.value].append(rows.reshape(rows.shape[0], -1))
        self._parameters.update(own.named(found.parameters))

    def together(self, sums: Places | None) -> StageGradients:
        """Return the gradients of the whole, with the parts' rows side by side."""
        inputs = {}
        for i in self._stage.inputs:
            if i.needs_gradient:
                rows = self._inputs[i.value]
                place = self._into.get(i.value)
                inputs[i.value] = torch.empty(rows[0].shape[0], *i.shape) if place is None else place
                torch.cat(rows, 1, out=inputs[i.value].view(rows[0].shape[0], -1))
        return StageGradients(inputs, self._parameters if sums is None else sums)


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
    """Return one model's numbers of all rows, in contiguous memory. [rows, *shape]."""
    rows = whole.reshape(whole.shape[0], -1)[:, columns]
    return rows.contiguous().view(-1, *own.shape)


def _put(outputs: Mapping[str, Tensor], rows: Mapping[str, Tensor], own: _Own) -> None:
    for whole, of_part, columns in own.outputs:
        made = rows[of_part.value]
        outputs[whole.value].view(made.shape[0], -1)[:, columns] = made.reshape(made.shape[0], -1)
