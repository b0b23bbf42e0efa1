"""The stage program that runs on a chunk piece by piece, so that a chunk may be larger than the cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from lotan.stages.chunk import Chunk, Places, SavedTogether
from lotan.stages.programs import Program
from lotan.stages.stage_run import StageResult, StageRun
from planner.loss import TARGETS
from planner.physical import StageInput, StageOutput


class Pieces:
    """A stage that runs on a few consecutive rows of a chunk at a time. The stage reads no edges.

    Random numbers belong to rows, so pieces do not change them. Gradients of parameters and of totals are added in the order
    of the pieces.

    Args:
        program: the stage's program.
        rows: number of rows in a piece.
    """

    def __init__(self, program: Program, rows: int) -> None:
        self._program, self._rows = program, rows
        self._totals = {i.value for i in program.stage.inputs if i.role == "total"}  # the same row for all pieces
        self._sums = {o.value for o in program.stage.outputs if o.few}  # whose gradient is the same row for all pieces

    def run(self, run: StageRun) -> StageResult:
        """Run the stage on a chunk, as `StageProgram.run` does."""
        stage = self._program.stage
        differentiated = [i for i in stage.inputs if i.needs_gradient] if run.differentiates else []
        made = stage.outputs if run.emits else ()
        outputs = _memory([o for o in made if not o.few], run)
        gradients = _memory([i for i in differentiated if i.role != "total"], run)
        few = [*(i.value for i in differentiated if i.role == "total"), *(o.value for o in made if o.few)]
        parts: dict[str, list[Tensor]] = {name: [] for name in few}  # rows to be reduced
        sums = run.sums
        if sums is None and run.differentiates:
            sums = {p.name: torch.zeros(p.shape) for p in stage.parameters if p.trainable}
        kept = run.saved.parts if isinstance(run.saved, SavedTogether) else None
        saved, counted = [], []
        for number, (rows, piece) in enumerate(self._cut(run.chunk)):
            found = self._program.run(
                replace(
                    run,
                    chunk=piece,
                    output_gradients={
                        name: gradient if name in self._sums else gradient[rows]
                        for name, gradient in run.output_gradients.items()
                    },
                    saved=None if kept is None else kept[number],
                    into=_places(outputs or gradients, rows),
                    sums=sums,
                )
            )
            for name in parts:
                parts[name].append(found.outputs[name] if run.emits else found.input_gradients[name])
            saved.append(found.saved)
            counted.append(found.statistics)
        greatest = stage.greatest if run.emits else ()
        added = {name: _reduced(rows, run.into.get(name), name in greatest) for name, rows in parts.items()}
        return StageResult(
            outputs | added if run.emits else {},
            SavedTogether(saved) if run.keep else None,
            {} if run.emits else gradients | added,
            sums or {},
            np.sum(cast(list[np.ndarray], counted), axis=0) if run.counts else None,
        )

    def _cut(self, chunk: Chunk) -> Iterator[tuple[slice, Chunk]]:
        for first in range(0, chunk.rows, self._rows):
            rows = slice(first, min(chunk.rows, first + self._rows))
            values = {name: value if name in self._totals else value[rows] for name, value in chunk.values.items()}
            targets = {name: one[rows] for name in TARGETS if (one := getattr(chunk, name)) is not None}
            yield rows, Chunk(chunk.keys[rows], values, **targets)


def _memory(values: Sequence[StageInput | StageOutput], run: StageRun) -> dict[str, Tensor]:
    """Return memory for all rows of values, which is the caller's if there is some."""
    return {
        v.value: run.into[v.value] if v.value in run.into else torch.empty(run.chunk.rows, *v.shape) for v in values
    }


def _reduced(parts: Sequence[Tensor], place: Tensor | None, greatest: bool) -> Tensor:
    """Return the sum of one or more rows [1, *shape], or their greatest numbers, in the caller's memory if there is some."""
    rows = torch.cat(list(parts))
    total = rows.amax(0, keepdim=True) if greatest else rows.double().sum(0, keepdim=True).float()
    return total if place is None else place.copy_(total)


def _places(columns: Mapping[str, Tensor], rows: slice) -> Places:
    return {name: column[rows] for name, column in columns.items()}
