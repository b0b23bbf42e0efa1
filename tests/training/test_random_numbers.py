"""Models that draw random numbers beside dropout: noise, feature masks and dropped edges, by the keys of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.utils import dropout_edge, mask_feature

import lotan
from tests.training.test_trainer import CLASSES, WIDTH, Data, _fit, _losses, assert_same_checkpoint

pytestmark = pytest.mark.thorough


class Augmented(torch.nn.Module):
    """A model as PyG users write it, with edges dropped and features masked in training."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv(WIDTH, 8), pyg.SAGEConv(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index, _ = dropout_edge(edge_index, p=0.3, training=self.training)
        x, _ = mask_feature(x, p=0.2, mode="all", training=self.training)
        x = self.first(x, edge_index).relu()
        if self.training:
            x = x + 0.1 * torch.randn_like(x)
        return self.second(x, edge_index)


def _model() -> torch.nn.Module:
    torch.manual_seed(0)
    return Augmented()


@pytest.mark.parametrize(
    "own", [{"plan": "general"}, {"disable": ["push_down_edges", "lift_message"]}, {"chunk_rows": 7}], ids=str
)
def test_every_plan_draws_the_same(own: dict[str, Any]) -> None:
    data = Data()
    usual = _fit(_model(), data, epochs=4)
    assert _losses(_fit(_model(), data, epochs=4, **own)) == pytest.approx(_losses(usual), rel=1e-5)
    assert len(set(_losses(usual))) == 4
    assert _losses(_fit(_model(), data, epochs=4, seed=1)) != _losses(usual)


def test_evaluation_draws_nothing() -> None:
    data = Data()
    run = _fit(_model(), data, epochs=3)
    model = _model().eval()
    model.load_state_dict(run.model.weights)
    with torch.no_grad():
        expected = data.logits(model).argmax(1)
    assert run.predict()["prediction"].tolist() == expected.tolist()


def test_edges_are_dropped_with_their_probability() -> None:
    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.scale = pyg.SimpleConv("sum"), torch.nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            edge_index, _ = dropout_edge(edge_index, p=0.4, training=self.training)
            return self.conv(torch.ones_like(x[:, :1]), edge_index) * self.scale

    vertices, edges = 500, 20_000
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(0, vertices, (2, edges), generator=generator).numpy()
    graph = lotan.Graph.from_arrays(
        torch.zeros(vertices, 2).numpy(),
        *ends,
        label=torch.zeros(vertices).numpy(),
        split=torch.zeros(vertices).long().numpy(),
    )
    settings = {
        "engine": "local",
        "progress": False,
        "task": "regression",
        "eval_every": 0,
        "optimizer": lotan.SGD(lr=0.0),
    }
    run = lotan.Trainer(Sum(), graph, epochs=1, loss=lambda output, label: (output - label)[:, 0], **settings).fit()
    kept = run.history[0]["loss"] * vertices / edges  # the mean over vertices of the edges that were kept
    assert kept == pytest.approx(0.6, abs=5 * (0.24 / edges) ** 0.5)


def test_a_resumed_run_draws_on(tmp_path: Path) -> None:
    data = Data()
    for epochs in (2, 5):
        _fit(_model(), data, epochs=epochs, checkpoint_dir=tmp_path / "a", resume=True)
    _fit(_model(), data, epochs=5, checkpoint_dir=tmp_path / "b")
    assert_same_checkpoint(tmp_path / "a" / "last.pt", tmp_path / "b" / "last.pt")


def test_members_of_a_batch_draw_their_own() -> None:
    data = Data()
    members = [lotan.Member(_model(), epochs=3, seed=seed) for seed in (0, 0, 1)]
    with lotan.ModelBatch(data.graph, members, engine="local", progress=False) as batch:
        batch.train()
        runs = batch.runs()
    alone = [_losses(_fit(_model(), data, epochs=3, seed=seed)) for seed in (0, 0, 1)]
    assert [_losses(runs[number]) for number in range(3)] == alone
    assert alone[0] != alone[2]


def test_a_model_may_draw_in_evaluation_too() -> None:
    class Always(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.SAGEConv(WIDTH, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(x + torch.randn_like(x), edge_index)

    def run(**own: Any) -> Any:
        torch.manual_seed(0)
        return _fit(Always(), Data(), epochs=3, **own)

    usual = run()
    for other in (run(), run(plan="general"), run(chunk_rows=7)):
        assert _losses(other) == pytest.approx(_losses(usual), rel=1e-5)
        assert other.metrics["val"] == pytest.approx(usual.metrics["val"], rel=1e-5)
        assert other.predict()["prediction"].tolist() == usual.predict()["prediction"].tolist()
