"""Recurrent layers over the own sequence of each row, in a form that can be traced.

While a model is traced, torch's LSTM, GRU, RNN and LSTMCell run the functions here in place of their own forwards. A
function calls `lotan.recurrent` for each layer and direction (`lotan.stages.recurrent`). `lotan.tracing.check` compares the
trace with the layer's own forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

import lotan.stages.recurrent  # noqa: F401  # it registers the operator
from lotan.tracing.replaced import Table

Refuse = Callable[[str], Exception]
"""A function that returns the error for the line that is running, given a reason."""

PACKED = "takes packed sequences, whose lengths differ; pad them to one length, [num_vertices, steps, channels]"
NO_SEQUENCE = "takes one sequence for each row, [num_vertices, steps, channels], but got {}"
ALONG_ROWS = "runs along the vertices, which have no order; {}, so that the sequence is a vertex's own, [{}]"
PROJECTED = "is made with proj_size, which is not supported; use a Linear layer behind it"
ROWS_ONLY = "takes rows [num_vertices, channels], but got {}"


def _sequence(refuse: Refuse, module: Any, x: Any, hx: Any = None) -> tuple[Tensor, Any]:
    """Run a recurrent layer of torch, layer by layer and direction by direction, with the rows in the first dimension."""
    name = type(module).__name__
    if not isinstance(x, Tensor):
        raise refuse(f"{name} {PACKED}")
    if x.dim() != 3:
        raise refuse(f"{name} {NO_SEQUENCE.format(_shape(x))}")
    if isinstance(x.shape[1 if module.batch_first else 0], torch.SymInt):
        given = (
            ("batch_first=False", "steps, num_vertices, channels")
            if module.batch_first
            else ("batch_first=True", "num_vertices, steps, channels")
        )
        raise refuse(f"{name} {ALONG_ROWS.format(f'make it with {given[0]}', given[1])}")
    if module.proj_size:
        raise refuse(f"{name} {PROJECTED}")
    both = module.mode == "LSTM"
    before: list[Tensor] = [] if hx is None else [*hx] if both else [hx]
    x = x if module.batch_first else x.transpose(0, 1)
    last: list[list[Tensor]] = [[], []]  # hidden states and those of cells, of each layer and direction
    for layer in range(module.num_layers):
        if layer:
            x = F.dropout(x, module.dropout, module.training)
        outs = []
        for way in ("", "_reverse")[: 1 + module.bidirectional]:
            state = [one[len(last[0])] for one in before]
            out, cell = _one_way(module, x.flip(1) if way else x, state, f"_l{layer}{way}")
            last[0].append(out[:, -1])
            last[1].append(cell)
            outs.append(out.flip(1) if way else out)
        x = torch.cat(outs, dim=-1) if len(outs) > 1 else outs[0]
    found = tuple(torch.stack(one) for one in last[: 1 + both])
    return x if module.batch_first else x.transpose(0, 1), found if both else found[0]


def _one_way(module: Any, x: Tensor, state: list[Tensor], ending: str) -> tuple[Tensor, Tensor]:
    """Return the hidden states [rows, steps, size] of one layer in one direction, and its last state [rows, size]."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[: 4 if module.bias else 2]
    weights = [getattr(module, f"{name}{ending}") for name in names]
    out = cast(Tensor, torch.ops.lotan.recurrent(x, state, module.mode.lower(), weights))
    return out[:, : x.shape[1]], out[:, -1]


def _lstm_cell(refuse: Refuse, module: Any, x: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:
    """Run one step of an LSTM on rows [num_vertices, channels]."""
    if x.dim() != 2:
        raise refuse(f"LSTMCell {ROWS_ONLY.format(_shape(x))}")
    gates = F.linear(x, module.weight_ih, module.bias_ih)
    if hx is not None:
        gates = gates + F.linear(hx[0], module.weight_hh, module.bias_hh)
    elif module.bias:
        gates = gates + module.bias_hh
    enter, keep, new, leave = gates.chunk(4, 1)
    cell = enter.sigmoid() * new.tanh()
    cell = cell if hx is None else cell + keep.sigmoid() * hx[1]
    return leave.sigmoid() * cell.tanh(), cell


def _shape(x: Tensor) -> str:
    return f"[{', '.join('num_vertices' if isinstance(size, torch.SymInt) else str(size) for size in x.shape)}]"


REPLACED: Table = {
    "torch.nn.modules.rnn.LSTM": _sequence,
    "torch.nn.modules.rnn.GRU": _sequence,
    "torch.nn.modules.rnn.RNN": _sequence,
    "torch.nn.modules.rnn.LSTMCell": _lstm_cell,
}
"""The functions that run in place of forwards."""
