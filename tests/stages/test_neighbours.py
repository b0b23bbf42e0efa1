"""Neighbours side by side: brute force over each vertex, and gradients, whatever the rows that fit into memory."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch import Tensor

from lotan.errors import StageError
from lotan.stages import neighbours

DESTINATIONS = torch.tensor([0, 0, 0, 0, 0, 2, 3, 3, 3])  # of 5 rows, two without in-edges
COUNTS = torch.tensor([5, 0, 1, 3, 0])
ORDER = torch.tensor([[3.0, 1.0, 0.0, 4.0, 2.0, 0.0, 1.0, 0.0, 2.0], [*range(9)]]).t()


@pytest.fixture(params=[1, 300, 1 << 30], autouse=True)
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "SIDE_BY_SIDE_BYTES", request.param)
    monkeypatch.setattr(neighbours, "ROWS_OF_SCORES", min(request.param, 2) or 1)


def rows(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()


def of_row(row: int) -> list[int]:
    return sorted(torch.eq(DESTINATIONS, row).nonzero().flatten().tolist(), key=lambda edge: ORDER[edge].tolist())


def test_rows_are_the_first_by_their_order() -> None:
    messages = rows(9, 2, 2)
    found = neighbours.neighbour_rows(messages, ORDER, DESTINATIONS, COUNTS, 3)
    expected = torch.zeros(5, 3, 2, 2, dtype=torch.float64)
    for row in range(5):
        for place, edge in enumerate(of_row(row)[:3]):
            expected[row, place] = messages[edge]
    assert torch.equal(found, expected)
    torch.autograd.gradcheck(lambda m: neighbours.neighbour_rows(m, ORDER, DESTINATIONS, COUNTS, 3), messages)


@pytest.mark.parametrize(("kind", "layers", "both"), [("lstm", 1, False), ("lstm", 2, True), ("gru", 1, True)])
def test_sequences_end_with_zeros(kind: str, layers: int, both: bool) -> None:
    network = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](2, 3, layers, batch_first=True, bidirectional=both)
    weights = [weight.detach().double().requires_grad_() for weight in network.double()._flat_weights]
    messages = rows(9, 2)

    def run(messages: Tensor, *weights: Tensor) -> Tensor:
        return neighbours.neighbour_sequence(messages, ORDER, DESTINATIONS, COUNTS, 6, kind, layers, both, weights)

    sides = torch.zeros(5, 6, 2, dtype=torch.float64)
    for row in range(5):
        sides[row, : len(of_row(row))] = messages[of_row(row)].detach()
    torch.testing.assert_close(run(messages, *weights), network(sides)[0][:, -1])
    torch.autograd.gradcheck(run, (messages, *weights), fast_mode=True)


def test_more_in_edges_than_steps_are_refused() -> None:
    weights = [torch.zeros(4, 2), torch.zeros(4, 1)]
    with pytest.raises(StageError, match="5 in-edges, but sequences have 4 steps"):
        neighbours.neighbour_sequence(torch.zeros(9, 2), ORDER, DESTINATIONS, COUNTS, 4, "lstm", 1, False, weights)


def test_each_in_edge_attends_to_those_of_its_row() -> None:
    queries, keys, values = rows(3, 9, 2, 3).unbind()
    found = neighbours.neighbour_attention(queries, keys, values, COUNTS)
    for row in range(5):
        own = of_row(row)
        for edge in own:
            scores = torch.einsum("hc,ehc->eh", queries[edge], keys[own]) / sqrt(3)
            expected = torch.einsum("eh,ehc->hc", scores.softmax(0), values[own])
            torch.testing.assert_close(found[edge], expected)
    given = [one.detach().requires_grad_() for one in (queries, keys, values)]
    torch.autograd.gradcheck(lambda *given: neighbours.neighbour_attention(*given, COUNTS), given, fast_mode=True)


def test_there_may_be_no_rows_and_no_edges() -> None:
    none, counts = torch.zeros(0, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    order = torch.zeros(0, 1)
    assert neighbours.neighbour_rows(torch.zeros(0, 3), order, none, counts, 2).shape == (2, 2, 3)
    assert neighbours.neighbour_attention(*torch.zeros(3, 0, 2, 4).unbind(), counts[:0]).shape == (0, 2, 4)
    weights = [torch.ones(3, 3), torch.ones(3, 1)]
    found = neighbours.neighbour_sequence(torch.zeros(0, 3), order, none, counts, 1, "gru", 1, False, weights)
    assert found.shape == (2, 1)
