"""What it means for a layer or model to equal torch_geometric's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor

from lotan.nn import EdgeIndex
from tests.nn.graphs import random_graph

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg  # noqa: F401  (for the tests)

WIDTH = 6
RELATIVE = 1e-5


def assert_parity(
    make: Callable[[], torch.nn.Module], make_pyg: Callable[[], torch.nn.Module], weighted: bool = False
) -> None:
    """The same seed draws the same parameters under the same names; outputs and gradients are equal; so is what is printed."""
    torch.manual_seed(7)
    ours = make()
    torch.manual_seed(7)
    theirs = make_pyg()
    assert_same_state(ours, theirs)
    assert str(ours) == str(theirs)
    _shift(ours, theirs)
    for seed in (1, 2):
        _assert_same_results(ours, theirs, seed, weighted)


def assert_same_state(ours: torch.nn.Module, theirs: torch.nn.Module) -> None:
    """Names and values are equal, and state moves both ways."""
    first, second = ours.state_dict(), theirs.state_dict()
    assert list(first) == list(second)
    for name in first:
        assert torch.equal(first[name], second[name]), name
    ours.load_state_dict(second)
    theirs.load_state_dict(first)
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]


def gradcheck(layer: torch.nn.Module, width: int = WIDTH) -> None:
    """Gradients of rows and parameters equal finite differences, in double precision."""
    layer.double()
    edge_index = random_graph(3, num_vertices=6, num_edges=11)
    graph = EdgeIndex(edge_index, _weights(11).double(), num_vertices=6, dtype=torch.float64)
    x = torch.randn(6, width, dtype=torch.float64, generator=torch.Generator().manual_seed(5), requires_grad=True)
    parameters = tuple(layer.parameters())
    assert torch.autograd.gradcheck(lambda x, *_: layer(x, graph), (x, *parameters))


def refuses(error: type[Exception], *words: str) -> AbstractContextManager[object]:
    """A context in which `error` is raised, its message holding all words."""
    return pytest.raises(error, match="".join(f"(?=.*{word})" for word in words))


def _shift(ours: torch.nn.Module, theirs: torch.nn.Module) -> None:
    """Fresh biases are zero and would hide mistakes: move every parameter a little, in both."""
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for first, second in zip(ours.parameters(), theirs.parameters(), strict=True):
            noise = 0.1 * torch.randn(first.shape, generator=generator)
            first += noise
            second += noise


def _assert_same_results(ours: torch.nn.Module, theirs: torch.nn.Module, seed: int, weighted: bool) -> None:
    edge_index = random_graph(seed)
    weight = _weights(edge_index.shape[1]) if weighted else None
    rows = torch.randn(12, WIDTH, generator=torch.Generator().manual_seed(seed))
    first, second = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    graph = edge_index if weight is None else EdgeIndex(edge_index, weight, num_vertices=12)
    torch.manual_seed(seed)  # dropout on vertices draws the same
    given = ours(first, graph)
    torch.manual_seed(seed)
    expected = theirs(second, edge_index) if weight is None else theirs(second, edge_index, weight)
    assert_close(given, expected)
    cotangent = torch.randn(expected.shape, generator=torch.Generator().manual_seed(9))
    wanted = [first, *ours.parameters()], [second, *theirs.parameters()]
    gradients = [
        torch.autograd.grad(output, inputs, cotangent, allow_unused=True)
        for output, inputs in zip((given, expected), wanted, strict=True)
    ]
    # Attention's gradients are small differences of large numbers: what is rounded off is in proportion to the largest.
    scale = max(truth.abs().max().item() for truth in gradients[1] if truth is not None)
    for mine, truth in zip(*gradients, strict=True):
        assert (mine is None) == (truth is None)
        if mine is not None:
            assert_close(mine, truth, scale)


def assert_close(given: Tensor, expected: Tensor, scale: float | None = None) -> None:
    """Equal within 1e-5 of the largest number, or of `scale`."""
    scale = expected.detach().abs().max().item() if scale is None else scale
    assert given.shape == expected.shape
    torch.testing.assert_close(given, expected, rtol=RELATIVE, atol=RELATIVE * scale)


def _weights(count: int) -> Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(6)) + 0.1
