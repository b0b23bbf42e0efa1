"""Quantiles over in-edges: the numbers are those of numpy, and the gradient goes to the messages that they are made of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lotan.stages.chunk import EdgeBlock, prefix_sum
from lotan.stages.edges import aggregate
from lotan.stages.quantile import quantile
from planner.spec import INTERPOLATIONS, is_aggregate


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 8),
    edges=st.integers(0, 30),
    q=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]),
    interpolation=st.sampled_from(INTERPOLATIONS),
    few_values=st.booleans(),
)
def test_equals_numpy(seed: int, rows: int, edges: int, q: float, interpolation: str, few_values: bool) -> None:
    draw = np.random.default_rng(seed)
    destinations = np.sort(draw.integers(0, rows, edges))
    shape = (edges, 2, 3)
    values = (draw.integers(0, 3, shape) if few_values else draw.normal(size=shape)).astype(np.float32)
    messages = torch.from_numpy(values).requires_grad_()
    index = torch.from_numpy(np.stack([destinations, destinations]))
    counts = torch.bincount(index[1], minlength=rows)
    block = EdgeBlock(prefix_sum(counts), torch.arange(edges))
    kind = f"quantile:{q}:{interpolation}"
    expected = np.zeros((rows, 2, 3), np.float32)
    for row in set(destinations):
        expected[row] = np.quantile(values[destinations == row], q, axis=0, method=interpolation)
    for found in (aggregate(messages, kind, block), quantile(messages, index, rows, kind)):
        np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-5)
        by = torch.randn_like(found)
        (gradient,) = torch.autograd.grad(found, [messages], by)
        spread = torch.zeros_like(found).index_add(0, index[1], gradient)  # all of it goes to the row's own messages
        torch.testing.assert_close(spread, by * (counts > 0).view(-1, 1, 1), atol=1e-5, rtol=1e-5)
        for row in set(destinations):
            here = torch.from_numpy(destinations == row)
            least, most = (
                torch.from_numpy(np.quantile(values[here.numpy()], q, axis=0, method=m)) for m in ("lower", "higher")
            )
            outside = (messages[here] != least) & (messages[here] != most)
            assert not gradient[here][outside].any()


def test_equal_messages_share_the_gradient() -> None:
    messages = torch.tensor([[1.0], [1.0], [5.0]], requires_grad=True)
    block = EdgeBlock(torch.tensor([0, 3]), torch.arange(3))
    aggregate(messages, "quantile:0.5:lower", block).sum().backward()
    assert messages.grad is not None
    assert messages.grad.tolist() == [[0.5], [0.5], [0.0]]


@pytest.mark.parametrize("kind", ["quantile:2:lower", "quantile:0.5:nearest", "quantile:x:lower", "median"])
def test_other_kinds_are_none(kind: str) -> None:
    assert not is_aggregate(kind)
