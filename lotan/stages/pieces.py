"""Runs a stage on a chunk piece by piece, because a chunk that travels as a whole may be too large for the cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from lotan.stages.chunk import Chunk, Parameters, Places, Saved, SavedTogether, StageGradients
from lotan.stages.programs import Program
from lotan.stages.randomness import Randomness


class Pieces:
    """A stage that runs on consecutive pieces of a chunk. The stage reads no edges.

    Random numbers belong to rows, so that cutting changes none. Gradients of parameters are added in the order of the pieces.

    Args:
        program: The stage's program.
        rows: The number of rows in a piece.
    """

    def __init__(self, program: Program, rows: int) -> None:
        self._program, self._rows = program, rows

    def forward(
        self, chunk: Chunk, parameters: Parameters, randomness: Randomness, keep: bool, into: Places
    ) -> tuple[dict[str, Tensor], SavedTogether | None]:
        """Run forward, as `StageProgram.forward` does."""
        outputs = self._outputs(chunk.rows, into)
        saved = [
            self._program.forward(piece, parameters, randomness, keep, _places(outputs, rows))[1]
            for rows, piece in self._cut(chunk)
        ]
        return outputs, SavedTogether(saved) if keep else None

    def backward(
        self,
        chunk: Chunk,
        parameters: Parameters,
        randomness: Randomness,
        output_gradients: Mapping[str, Tensor],
        saved: Saved | None,
        into: Places,
    ) -> StageGradients:
        """Run backward, as `StageProgram.backward` does."""
        inputs, sums = self._gradients(chunk.rows, into)
        kept = saved.parts if isinstance(saved, SavedTogether) else None
        for number, (rows, piece) in enumerate(self._cut(chunk)):
            given = {name: gradient[rows] for name, gradient in output_gradients.items()}
            of_piece = None if kept is None else kept[number]
            self._program.backward(piece, parameters, randomness, given, of_piece, _places(inputs, rows), sums)
        return StageGradients(inputs, sums)

    def turn(
        self, chunk: Chunk, parameters: Parameters, randomness: Randomness, into: Places
    ) -> tuple[np.ndarray, StageGradients]:
        """Run forward and backward, as `StageProgram.turn` does."""
        inputs, sums = self._gradients(chunk.rows, into)
        counted = [
            self._program.turn(piece, parameters, randomness, _places(inputs, rows), sums)[0]
            for rows, piece in self._cut(chunk)
        ]
        return np.sum(counted, axis=0), StageGradients(inputs, sums)

    def evaluate(self, chunk: Chunk, parameters: Parameters) -> np.ndarray:
        """Return the statistics, as `StageProgram.evaluate` does."""
        return np.sum([self._program.evaluate(piece, parameters) for _, piece in self._cut(chunk)], axis=0)

    def predict(self, chunk: Chunk, parameters: Parameters, into: Places) -> dict[str, Tensor]:
        """Return the outputs, as `StageProgram.predict` does."""
        outputs = self._outputs(chunk.rows, into)
        for rows, piece in self._cut(chunk):
            self._program.predict(piece, parameters, _places(outputs, rows))
        return outputs

    def _cut(self, chunk: Chunk) -> Iterator[tuple[slice, Chunk]]:
        for first in range(0, chunk.rows, self._rows):
            rows = slice(first, min(chunk.rows, first + self._rows))
            values = {name: value[rows] for name, value in chunk.values.items()}
            label, split = (None if one is None else one[rows] for one in (chunk.label, chunk.split))
            yield rows, Chunk(chunk.keys[rows], values, {}, label, split)

    def _outputs(self, rows: int, into: Places) -> dict[str, Tensor]:
        return {o.value: _memory(o.value, rows, o.shape, into) for o in self._program.stage.outputs}

    def _gradients(self, rows: int, into: Places) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return memory for the gradients of inputs, and zeros for those of parameters."""
        stage = self._program.stage
        inputs = {i.value: _memory(i.value, rows, i.shape, into) for i in stage.inputs if i.needs_gradient}
        return inputs, {p.name: torch.zeros(p.shape) for p in stage.parameters if p.trainable}


def _memory(name: str, rows: int, shape: tuple[int, ...], into: Places) -> Tensor:
    return into[name] if name in into else torch.empty(rows, *shape)


def _places(columns: Mapping[str, Tensor], rows: slice) -> Places:
    return {name: column[rows] for name, column in columns.items()}
