"""Expressions of edges: what they read, and derivatives against torch's."""

from __future__ import annotations

import pytest
import torch

from lotan.engines.local.edge_columns import OPERATIONS as TORCH
from planner.expressions import OPERATIONS, adjoint, columns, leaves, renamed, text

A, B, G = ("source", "a"), ("edge", "b"), ("edge", "g")
SLOPED = ("leaky_relu", "leaky_relu_slope")
EVERY = [(name, *(A, B)[:count], *([0.3] if name in SLOPED else [])) for name, count in OPERATIONS.items()]


def evaluated(expression, values):
    match expression:
        case ("constant", value):
            return torch.tensor(value, dtype=torch.float64)
        case ("source" | "destination" | "edge", _):
            return values[expression]
    parts = [evaluated(part, values) if isinstance(part, tuple) else part for part in expression[1:]]
    return TORCH[expression[0]](*parts)


@pytest.mark.parametrize("expression", [e for e in EVERY if e[0] != "leaky_relu_slope"], ids=lambda e: e[0])
def test_derivatives_are_those_of_torch(expression):
    """Of f(a, b) + f(f(a, b), b): every operand is read twice, once through the operation itself."""
    whole = ("add", expression, (expression[0], expression, *expression[2:]))
    torch.manual_seed(0)
    values = {leaf: torch.randn(50, dtype=torch.float64).requires_grad_() for leaf in (A, B)}
    gradient = torch.randn(50, dtype=torch.float64)
    read = list(dict.fromkeys(leaves(whole)))
    expected = torch.autograd.grad(evaluated(whole, values), [values[leaf] for leaf in read], gradient)
    found = adjoint(whole, G)
    for leaf, truth in zip(read, expected, strict=True):
        torch.testing.assert_close(evaluated(found[leaf], {**values, G: gradient}), truth)


def test_the_slope_at_zero_is_that_below():
    x = torch.zeros(1, requires_grad=True)
    (truth,) = torch.autograd.grad(torch.nn.functional.leaky_relu(x, 0.3).sum(), x)
    assert torch.equal(TORCH["leaky_relu_slope"](x, 0.3), truth)


def test_every_operation_can_be_run_and_written():
    assert set(TORCH) == set(OPERATIONS)
    assert all(text(expression) for expression in EVERY)


def test_columns_are_named_once_and_renamed_everywhere():
    expression = ("mul", ("add", A, ("weight",)), ("leaky_relu", ("sub", A, B), 0.1))
    assert columns(expression) == ("a", "b")
    assert list(leaves(expression)) == [A, ("weight",), A, B]
    assert text(renamed(expression, str.upper)) == "(source.A + weight) * leaky_relu(source.A - edge.B, 0.1)"
