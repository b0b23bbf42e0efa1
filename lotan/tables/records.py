"""Records of vertices: the learned rows of each, and the state that the optimizer has of them, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import Tensor

from lotan.settings.row_wise import state_by_row
from messenger.row_table import Rows


@dataclass(frozen=True)
class _Field:
    """A parameter with a row for each vertex, or one of the optimizer's tensors of it. It has a place in a record."""

    parameter: torch.nn.Parameter
    state: str | None  # the name of the optimizer's tensor; None: the parameter itself
    whole: Tensor  # all rows, in this process [vertices, *shape]
    start: int
    end: int


class Records:
    """The learned rows of a model in training, which are lent the rows of one batch at a time.

    While rows are lent, the parameters and the state of the optimizer have the rows of the batch alone. A pass and a step
    run on them as they would on all rows.

    Args:
        learned: the parameters with a row for each vertex, by name.
        optimizer: the optimizer, which may train some of them.
    """

    def __init__(self, learned: Mapping[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._fields: list[_Field] = []
        trained = {id(one) for group in optimizer.param_groups for one in group["params"]}
        end = 0
        for parameter in learned.values():
            state = state_by_row(optimizer, parameter) if id(parameter) in trained else {}
            for name, whole in ((None, parameter.data), *state.items()):
                start, end = end, end + prod(whole.shape[1:])
                self._fields.append(_Field(parameter, name, whole, start, end))
        self.width = end  # numbers in a record
        self.count = len(self._fields[0].whole)  # records: one for each vertex

    def lend(self, records: Rows) -> None:
        """Give the parameters and the optimizer the rows of a batch. [rows, width]."""
        for one in self._fields:
            rows = torch.empty(len(records), *one.whole.shape[1:])  # in memory of torch's, as all rows are
            rows.view(len(records), -1).copy_(torch.from_numpy(records[:, one.start : one.end]))
            self._set(one, rows)

    def lent(self) -> Rows:
        """Return copies of the rows that are lent, as the step has left them. [rows, width]."""
        tensors = [self._get(one) for one in self._fields]
        records = np.empty((len(tensors[0]), self.width), dtype=np.float32)
        for one, rows in zip(self._fields, tensors, strict=True):
            records[:, one.start : one.end] = rows.detach().reshape(len(rows), -1).numpy()
        return records

    def return_all(self) -> None:
        """Give the parameters and the optimizer all rows again, as they are in this process."""
        for one in self._fields:
            self._set(one, one.whole)

    def parts(self, rows: int) -> Iterator[tuple[int, Rows]]:
        """Yield all records in runs of so many, each with the place of its first."""
        for start in range(0, self.count, rows):
            some = [one.whole[start : start + rows] for one in self._fields]
            yield start, np.concatenate([part.reshape(len(part), -1).numpy() for part in some], axis=1)

    def take(self, start: int, records: Rows) -> None:
        """Store records that were read from the tables in this process, from the given one on."""
        for one in self._fields:
            into = one.whole[start : start + len(records)]
            into.copy_(torch.from_numpy(records[:, one.start : one.end]).view_as(into))

    def _get(self, one: _Field) -> Tensor:
        return one.parameter.data if one.state is None else self._optimizer.state[one.parameter][one.state]

    def _set(self, one: _Field, rows: Tensor) -> None:
        if one.state is None:
            one.parameter.data = rows
        else:
            self._optimizer.state[one.parameter][one.state] = rows
