"""Writes the sums of a propagate as a column. A column in files is read in slices of its width, one of them in memory."""

from __future__ import annotations

import torch
from torch import Tensor

from lotan.engines.local.crew import Crew
from lotan.engines.local.loaded_graph import LazySums
from lotan.memory.mapped import MappedMemory
from planner.chunks import slice_width

COPIED_BYTES = 8 << 20
"""The bytes of a column in files that are copied to memory at a time."""


def write_sums(sums: LazySums, out: Tensor, crew: Crew, mapped: MappedMemory | None) -> None:
    """Write all rows of sums over edges.

    Edges lead from anywhere, so that a column that is summed is needed whole. One that lies in files is copied to
    memory, so many numbers of each row at a time as fit there. A number's sum has the same terms in the same order.

    Args:
        sums: The sums.
        out: The place for them. [vertices, *shape].
        crew: The threads.
        mapped: The files in which columns lie; None: they lie in memory.
    """
    chunks = sums.product.chunks
    if mapped is None or not mapped.holds(sums.column):

        def write_rows(number: int) -> None:
            sums.write(number, out[chunks[number]])
            if mapped is not None:
                mapped.give_back(out[chunks[number]])
                sums.product.give_back(number, mapped)

        crew.run(len(chunks), write_rows)
        return
    column, written = (tensor.view(len(tensor), -1) for tensor in (sums.column, out))
    width = slice_width(*column.shape)
    memory = torch.empty(len(column) * width)
    for start in range(0, column.shape[1], width):
        numbers = slice(start, min(start + width, column.shape[1]))
        part = memory[: len(column) * (numbers.stop - start)].view(len(column), -1)
        _copy(column, numbers, part, mapped)

        def write(number: int, part: Tensor = part, numbers: slice = numbers) -> None:
            rows = chunks[number]
            sums.product.write(number, part, written[rows, numbers])
            mapped.give_back(written[rows])
            sums.product.give_back(number, mapped)

        crew.run(len(chunks), write)


def _copy(column: Tensor, numbers: slice, part: Tensor, mapped: MappedMemory) -> None:
    """Copy some numbers of each row to memory, a few rows at a time. column [vertices, width], part [vertices, numbers]."""
    length = max(1, COPIED_BYTES // (column.element_size() * column.shape[1]))
    for start in range(0, len(column), length):
        rows = column[start : start + length]
        part[start : start + length] = rows[:, numbers]
        mapped.give_back(rows)
