"""One layer of a recurrent network over each row's own sequence equals torch's own module, gradients included."""

from __future__ import annotations

import pytest
import torch

from lotan.errors import StageError
from lotan.stages.operators import compile_call
from lotan.stages.recurrent import KINDS, recurrent
from planner.spec import Call, Ref, ValueType

MODULES = {
    "lstm": lambda bias: torch.nn.LSTM(3, 5, batch_first=True, bias=bias),
    "gru": lambda bias: torch.nn.GRU(3, 5, batch_first=True, bias=bias),
    "rnn_tanh": lambda bias: torch.nn.RNN(3, 5, batch_first=True, bias=bias),
    "rnn_relu": lambda bias: torch.nn.RNN(3, 5, batch_first=True, bias=bias, nonlinearity="relu"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
def test_equals_the_module_of_torch(kind: str, bias: bool) -> None:
    torch.manual_seed(KINDS.index(kind))
    module = MODULES[kind](bias).double()
    x = torch.randn(7, 4, 3, dtype=torch.float64, requires_grad=True)
    state = [torch.randn(7, 5, dtype=torch.float64, requires_grad=True) for _ in range(1 + (kind == "lstm"))]
    weights = list(module.parameters())
    given = [one.unsqueeze(0) for one in state]
    out, last = module(x, tuple(given) if kind == "lstm" else given[0])
    expected = torch.cat([out, last[1].transpose(0, 1)], 1) if kind == "lstm" else out
    found = recurrent(x, state, kind, weights)
    assert torch.equal(found, expected)
    by = torch.randn_like(expected)
    for mine, theirs in zip(
        torch.autograd.grad(found, [x, *state, *weights], by),
        torch.autograd.grad(expected, [x, *state, *weights], by),
        strict=True,
    ):
        assert torch.allclose(mine, theirs)
    zeros = [torch.zeros_like(one) for one in state]
    assert torch.equal(recurrent(x, [], kind, weights), recurrent(x, zeros, kind, weights))


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_give_no_rows(kind: str) -> None:
    out = recurrent(torch.empty(0, 4, 3), [], kind, list(MODULES[kind](True).parameters()))
    assert out.shape == (0, 4 + (kind == "lstm"), 5)


@pytest.mark.parametrize(
    "arguments", [(Ref("x"), (), "transformer", (Ref("w"),)), (Ref("x"), (1,), "gru", (Ref("w"),))]
)
def test_a_stage_from_the_wire_may_name_known_kinds_and_values_only(arguments: tuple) -> None:
    with pytest.raises(StageError, match=r"lotan\.recurrent"):
        compile_call(Call("y", "lotan.recurrent", arguments, ValueType("vertex", (4, 5))), {})
