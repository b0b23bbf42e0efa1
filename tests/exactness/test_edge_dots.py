"""Dot products of both ends of each edge are steps of the Graph Engine, and train as plain autograd does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

import lotan
from tests.exactness.edge_models import OUT, WIDTH
from tests.exactness.test_edge_data import RATE, Sample, sample
from tests.night import at_night

pytestmark = pytest.mark.thorough

FORMS = {
    "kept": lambda product: product.sum(-1, keepdim=True),
    "by number": lambda product: product.sum(2).unsqueeze(-1),
    "doubled": lambda product: (product.sum(-1) + product.sum(-1)).unsqueeze(-1),
}


class DotAttention(MessagePassing):
    """A softmax over the products of two maps, with two heads. The scores weigh a third map, or are summed as they are."""

    def __init__(self, form: str) -> None:
        super().__init__(node_dim=0)
        self.form = FORMS[form]
        self.maps = torch.nn.ModuleList(torch.nn.Linear(WIDTH, 2 * OUT) for _ in range(3))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        query, key, value = (of(x).view(-1, 2, OUT) for of in self.maps)
        return self.propagate(edge_index, query=query, key=key, value=value).mean(1)

    def message(self, query_i: Tensor, key_j: Tensor, value_j: Tensor, index: Tensor, size_i: int) -> Tensor:
        score = self.form(query_i * key_j) / 2.0
        return softmax(score, index, num_nodes=size_i) * value_j


def train_truth(model: torch.nn.Module, drawn: Sample, steps: int) -> list[float]:
    optimizer, losses = torch.optim.SGD(model.parameters(), RATE), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(drawn.x, drawn.edges[0])[drawn.train], drawn.label[drawn.train])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


ON = at_night(
    [("local", form) for form in FORMS] + [("blocks", form) for form in FORMS] + [("rows", "kept")],
    unless={("local", form) for form in FORMS},
)


@pytest.mark.parametrize(("engine", "form"), ON)
def test_equals_plain_autograd(engine: str, form: str) -> None:
    """Within levels too: not all vertices are trained on."""
    torch.manual_seed(3)
    ours, truth = DotAttention(form), DotAttention(form)
    truth.load_state_dict(ours.state_dict())
    drawn = sample(5)
    settings = {"epochs": 3, "eval_every": 3, "engine": engine, "progress": False, "seed": 1}
    trainer = lotan.Trainer(ours, drawn.graph, optimizer=lotan.SGD(lr=RATE), **settings)
    run = trainer.fit()
    assert [entry["loss"] for entry in run.history] == pytest.approx(train_truth(truth, drawn, 3), rel=2e-5)
    for mine, other in zip(ours.parameters(), truth.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=5e-4, atol=1e-5)
    steps = trainer.explain(stage="physical")
    assert ("EdgeDot(" in steps) == (engine != "rows")
    assert ("Collect(" in steps) == (engine == "rows")


class OneEnd(DotAttention):
    """The products of two rows of one end: no dot product of both."""

    def message(self, query_j: Tensor, key_j: Tensor, value_j: Tensor, index: Tensor, size_i: int) -> Tensor:
        return super().message(query_j, key_j, value_j, index, size_i)


class Broadcast(DotAttention):
    """One row is as wide as a head of the other."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        query, key, value = (of(x).view(-1, 2, OUT) for of in self.maps)
        return self.propagate(edge_index, query=query[:, :1], key=key, value=value).mean(1)


@pytest.mark.parametrize("kind", [OneEnd, Broadcast])
def test_other_products_are_none(kind: type[DotAttention]) -> None:
    torch.manual_seed(3)
    ours, truth, drawn = kind("kept"), kind("kept"), sample(5)
    truth.load_state_dict(ours.state_dict())
    trainer = lotan.Trainer(ours, drawn.graph, optimizer=lotan.SGD(lr=RATE), epochs=2, eval_every=2, progress=False)
    assert "EdgeDot(" not in trainer.explain(stage="physical").partition("one epoch ==")[2].partition("backward")[0]
    run = trainer.fit()
    assert [entry["loss"] for entry in run.history] == pytest.approx(train_truth(truth, drawn, 2), rel=2e-5)
