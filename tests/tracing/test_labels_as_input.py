"""Models that take labels as input, such as UniMP: each epoch hides others, and the loss is over the hidden ones."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import lotan
from lotan.errors import ConfigurationError, DivergedError, GraphError, ModelError
from lotan.graph.row_keys import vertex_keys
from lotan.stages.randomness import Randomness, random_rows
from planner.spec import SHOWN_KEY
from tests.tracing.test_pyg_layers import assert_same_training, messy_graph

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch_geometric.nn import MaskLabel, TransformerConv

SEED, RATE = 7, 0.6


class UniMP(torch.nn.Module):
    """The model of PyG's example unimp_arxiv, without dropout."""

    def __init__(self, method: str = "add") -> None:
        super().__init__()
        self.label_emb = MaskLabel(3, 6, method)
        self.conv1 = TransformerConv(6 if method == "add" else 12, 4, 2, beta=True)
        self.norm = torch.nn.LayerNorm(8)
        self.conv2 = TransformerConv(8, 3, 2, concat=False, beta=True)

    def forward(self, x: Tensor, y: Tensor, edge_index: Tensor, label_mask: Tensor) -> Tensor:
        x = self.label_emb(x, y, label_mask)
        return self.conv2(self.norm(self.conv1(x, edge_index)).relu(), edge_index)


def trained_by_pyg(model: torch.nn.Module, graph: lotan.Graph, rate: float = RATE, epochs: int = 3) -> list[float]:
    """Train as PyG's example does, with the masks that an epoch draws. Return the losses."""
    data, keys, losses = graph.to_pyg(), torch.from_numpy(vertex_keys(graph.arrays().ids)), []
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(1, epochs + 1):
        rows = torch.zeros(len(keys))
        shown = data.train_mask & (random_rows(rows, "chance", rate, Randomness(SEED, epoch), SHOWN_KEY, keys) > 0)
        hidden = data.train_mask & ~shown
        loss = torch.nn.functional.cross_entropy(model(data.x, data.y, data.edge_index, shown)[hidden], data.y[hidden])
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(loss.item())
    return losses


SETTINGS: dict[str, Any] = {"epochs": 3, "optimizer": lotan.SGD(lr=0.1), "seed": SEED, "label_rate": RATE}


def assert_trains_as_pyg(model: torch.nn.Module, **settings: Any) -> lotan.Run:
    torch.manual_seed(1)
    graph, theirs = messy_graph(), copy.deepcopy(model)
    run = lotan.Trainer(model, graph, progress=False, **SETTINGS, **settings).fit()
    assert_same_training(run, trained_by_pyg(theirs, graph), model, theirs)
    return run


@pytest.mark.parametrize(("method", "plan"), [("add", "auto"), ("concat", "general")])
def test_trains_as_in_pyg(method: str, plan: str) -> None:
    assert_trains_as_pyg(UniMP(method), engine="local", plan=plan)


@pytest.mark.nightly  # by day on local
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["blocks", "rows"])
def test_trains_as_in_pyg_on_spark(engine: str, spark: object) -> None:
    assert_trains_as_pyg(UniMP(), engine=engine, partitions=3)


def test_predictions_see_all_training_labels_and_no_others(tmp_path: Path) -> None:
    graph, model = messy_graph(), UniMP()
    run = lotan.Trainer(model, graph, engine="local", epochs=1, progress=False).fit()
    run.save(tmp_path / "model")
    arrays, data = graph.arrays(), graph.to_pyg()
    with torch.no_grad():
        expected = model.eval()(data.x, data.y, data.edge_index, data.train_mask).softmax(1).numpy()
    others = graph.relabelled(np.where(arrays.split == 0, arrays.label, (arrays.label + 1) % 3), arrays.split)
    loaded = lotan.load(tmp_path / "model")
    for found in (run.predict(), loaded.predict(others, engine="local")):
        np.testing.assert_allclose(np.stack(found["probability"]), expected, atol=1e-5)
    with pytest.raises(GraphError, match="needs classes at training vertices"):
        loaded.predict(graph.relabelled(), engine="local")
    with pytest.raises(ModelError, match="takes labels as input; explain_vertex"):
        run.explain_vertex(0)


@pytest.mark.nightly
def test_members_of_a_batch_train_as_alone() -> None:
    graph, models = messy_graph(), [UniMP(), UniMP()]
    alone = [copy.deepcopy(model) for model in models]
    members = [lotan.Member(model, SETTINGS["optimizer"], seed=SEED + n, epochs=2) for n, model in enumerate(models)]
    for number, model in enumerate(alone):
        own = SETTINGS | {"seed": SEED + number, "epochs": 2}
        lotan.Trainer(model, graph, engine="local", progress=False, **own).fit()
    with lotan.ModelBatch(graph, members, engine="local", progress=False, label_rate=RATE) as batch:
        batch.train()
    for model, expected in zip(models, alone, strict=True):
        for name, value in expected.state_dict().items():
            assert torch.equal(model.state_dict()[name], value)
    mixed = [members[0], lotan.Member(lotan.nn.GCN(6, 4, 2, 3))]
    with (
        pytest.raises(ConfigurationError, match="some members take labels as input"),
        lotan.ModelBatch(graph, mixed, engine="local", progress=False) as batch,
    ):
        batch.train()


@pytest.mark.nightly
def test_a_mini_batch_of_everything_is_a_full_batch() -> None:
    model = UniMP()
    other, regime = copy.deepcopy(model), lotan.MiniBatch(1000, ("all", "all"))
    graph, settings = messy_graph(), SETTINGS | {"engine": "local", "progress": False, "epochs": 1}
    losses = [
        lotan.Trainer(one, graph, regime=of, **settings).fit().history[0]["loss"]
        for one, of in ((model, regime), (other, lotan.FullBatch()))
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
def test_mini_batches_that_spark_draws_show_the_same_labels(spark: object) -> None:
    torch.manual_seed(5)
    model, found = UniMP(), {}
    for engine in ("local", "blocks"):
        ours, regime = copy.deepcopy(model), lotan.MiniBatch(6, (2, "all"), seed=3)
        run = lotan.Trainer(ours, messy_graph(), regime=regime, engine=engine, progress=False, **SETTINGS).fit()
        found[engine] = [epoch["loss"] for epoch in run.history], ours.state_dict()
    assert found["blocks"][0] == pytest.approx(found["local"][0], abs=1e-6)
    for name, value in found["local"][1].items():
        torch.testing.assert_close(found["blocks"][1][name], value, rtol=0, atol=1e-6)


def test_an_epoch_without_hidden_labels_is_named() -> None:
    graph = messy_graph()
    one = graph.relabelled(graph.arrays().label, np.where(np.arange(40) == 5, 0, -1).astype(np.int8))
    settings = SETTINGS | {"label_rate": 0.95, "engine": "local", "progress": False}
    with pytest.raises(
        DivergedError, match=r"epoch 1: the model saw the labels of all .* lower label_rate, which is 0\.95"
    ):
        lotan.Trainer(UniMP(), one, **settings).fit()
    with pytest.raises(ConfigurationError, match="label_rate is 1, which leaves no vertex for the loss"):
        lotan.TrainerConfig(label_rate=1.0)
    with pytest.raises(ConfigurationError, match=r"label_rate is 0\.95, but the model takes no labels as input"):
        lotan.Trainer(lotan.nn.GCN(6, 4, 2, 3), messy_graph(), **settings).fit()


class WithoutMask(UniMP):
    def forward(self, x: Tensor, y: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, y, edge_index, y >= 0)


def test_labels_need_a_mask_and_classes() -> None:
    with pytest.raises(ModelError, match=r"asks for 'y' \(labels as input\).*together with a mask"):
        lotan.Trainer(WithoutMask(), messy_graph(), engine="local", progress=False).explain()
    graph = messy_graph()
    targets = graph.relabelled(graph.arrays().features[:, :1], graph.arrays().split)
    with pytest.raises(GraphError, match="needs classes at training vertices"):
        lotan.Trainer(UniMP(), targets, engine="local", progress=False).explain()
    arrays = graph.arrays()
    given = {"src": arrays.src, "dst": arrays.dst, "label": arrays.label, "split": arrays.split}
    grouped = lotan.Graph.from_arrays(arrays.features, **given, batch=np.zeros(40, dtype=np.int64))
    with pytest.raises(GraphError, match="without groups of vertices"):
        lotan.Trainer(UniMP(), grouped, engine="local", progress=False).explain()
