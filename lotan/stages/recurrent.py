"""Recurrent layers over the own sequence of each row: one layer in one direction, run as torch's own LSTM, GRU or RNN."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
"""The kinds of recurrent layers, by the names of torch's functions."""


def recurrent(x: Tensor, state: Sequence[Tensor], kind: str, weights: Sequence[Tensor]) -> Tensor:
    """Run a recurrent layer along the second dimension.

    Args:
        x: a sequence for each row, [rows, steps, channels].
        state: the hidden state before the first step, [rows, size], and for "lstm" then the cell's; empty for zeros.
        kind: one of `KINDS`.
        weights: those of the input and of the state, [gates * size, channels] and [gates * size, size], then perhaps both
            biases, [gates * size].

    Returns:
        The hidden state after each step, [rows, steps, size]. For "lstm", one more row [size] follows: the cell's last state.
    """
    rows, steps, _ = x.shape
    size = weights[1].shape[1]
    if isinstance(rows, int) and not rows:
        return x.new_zeros(0, steps + (kind == "lstm"), size)
    before = [one.unsqueeze(0) for one in state]
    before = before or [x.new_zeros(1, rows, size) for _ in range(1 + (kind == "lstm"))]
    settings = (
        len(weights) == 4,
        1,
        0.0,
        torch.is_grad_enabled(),
        False,
        True,
    )  # layers, dropout, train, both ways, rows first
    if kind == "lstm":
        out, _, cell = torch.lstm(x, before, list(weights), *settings)
        return torch.cat([out, cell.transpose(0, 1)], dim=1)
    return {"gru": torch.gru, "rnn_tanh": torch.rnn_tanh, "rnn_relu": torch.rnn_relu}[kind](
        x, before[0], list(weights), *settings
    )[0]


_LIBRARY = torch.library.Library("lotan", "FRAGMENT")
_LIBRARY.define("recurrent(Tensor x, Tensor[] state, str kind, Tensor[] weights) -> Tensor")
_LIBRARY.impl("recurrent", recurrent, "CompositeImplicitAutograd")
