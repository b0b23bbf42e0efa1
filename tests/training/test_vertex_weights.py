"""Weights of vertices in the loss, against the loop that everyone writes in torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import lotan
from lotan.errors import GraphError
from tests.training.test_trainer import VERTICES, Data, _curve, _fit, _losses, _pair

EPOCHS = 6


def _weighted(label: str = "classes", holes: bool = False) -> tuple[Data, Tensor]:
    """A graph whose vertices have weights, some of them 0, and the weights."""
    data = Data(label)
    if holes:
        data.label[::3, 0] = np.nan
    weight = np.random.default_rng(7).choice([0.0, 0.5, 1.0, 4.0], size=VERTICES).astype(np.float32)
    data.graph = lotan.Graph.from_arrays(
        data.x, *data.edge_index, label=data.label, split=data.split, vertex_weight=weight
    )
    return data, torch.from_numpy(weight)


def _truth(label: str, classes: Tensor | None, weight: Tensor) -> Any:
    """A loss over rows, divided by the sum of their weights, as torch divides by those of classes."""

    def loss(output: Tensor, target: Tensor) -> Tensor:
        if label == "classes":
            each = weight if classes is None else weight * classes[target]
            return (functional.cross_entropy(output, target, reduction="none") * each).sum() / each.sum()
        known = ~target.isnan()
        if label == "labels":
            terms = functional.binary_cross_entropy_with_logits(output, target.nan_to_num(), reduction="none")
        else:
            terms = (output - target).square()
        each = weight[:, None] * known
        return (terms * each).sum() / each.sum()

    return loss


CASES: list[tuple[str, dict[str, Any]]] = [
    ("classes", {}),
    ("classes", {"class_weights": [0.5, 1.0, 3.0]}),
    ("classes", {"loss": "focal(gamma=0.0)"}),
    ("labels", {}),
    ("targets", {}),
    ("targets", {"loss": lambda output, label: (output - label).square()}),
    ("classes", {"plan": "general", "chunk_rows": 7}),
]


@pytest.mark.parametrize(("label", "settings"), CASES, ids=[f"{label}, {', '.join(given)}" for label, given in CASES])
def test_weights_of_vertices_are_those_of_the_loop_in_torch(label: str, settings: dict[str, Any]) -> None:
    data, weight = _weighted(label, holes=label == "labels")
    ours, theirs = _pair()
    run = _fit(ours, data, epochs=EPOCHS, **settings)
    classes = torch.tensor(settings["class_weights"]) if "class_weights" in settings else None
    truth = _truth(label, classes, weight[data.rows(0)])
    assert _losses(run) == pytest.approx(_curve(theirs, data, truth, EPOCHS), rel=1e-4)
    with torch.no_grad():
        rows = data.rows(1)
        logits = data.logits(ours)[rows]
        expected = _truth(label, classes, weight[rows])(logits, torch.from_numpy(data.label)[rows])
    found = run.metrics["val"]
    assert found["loss"] == pytest.approx(expected.item(), rel=1e-4)
    if label == "classes":  # counts vertices, whatever they weigh
        accuracy = (logits.argmax(1) == torch.from_numpy(data.label)[rows]).float().mean()
        assert found["accuracy"] == pytest.approx(accuracy.item())


def test_a_mini_batch_is_divided_by_its_own_weights() -> None:
    data, weight = _weighted()
    ours, theirs = _pair()
    regime = lotan.MiniBatch(batch_size=VERTICES, fanouts=(VERTICES, VERTICES))  # all there is, in one batch
    run = _fit(ours, data, epochs=3, regime=regime)
    assert _losses(run) == pytest.approx(
        _curve(theirs, data, _truth("classes", None, weight[data.rows(0)]), 3), rel=1e-4
    )


def test_weights_come_from_a_column_and_survive_saving(tmp_path: Path) -> None:
    data, weight = _weighted()
    splits = [None, "train", "val", "test"]
    vertices = pd.DataFrame({"id": np.arange(VERTICES), "features": list(data.x), "label": data.label})
    vertices["split"] = [splits[code + 1] for code in data.split]
    vertices["importance"] = weight.numpy()
    edges = pd.DataFrame({"src": data.edge_index[0], "dst": data.edge_index[1]})
    graph = lotan.Graph(vertices, edges, vertex_weight="importance")
    np.testing.assert_array_equal(graph.arrays().vertex_weight, weight)
    graph.save(tmp_path / "graph")
    for again in (lotan.Graph.read(tmp_path / "graph"), lotan.Graph.from_pyg(graph.to_pyg()), graph.relabelled()):
        np.testing.assert_array_equal(again.arrays().vertex_weight, weight)
    trainer = lotan.Trainer(_pair()[0], lotan.Graph.read(tmp_path / "graph"), engine="local", progress=False)
    assert "weights: none, and of vertices in the loss" in trainer.explain()
    assert "3 classes, weighted in the loss" in repr(graph)
    plain = lotan.Graph.read(tmp_path / "graph", vertex_weight=None)
    assert plain.arrays().vertex_weight is None
    run = lotan.Trainer(_pair()[0], graph, engine="local", epochs=1, progress=False).fit()
    pd.testing.assert_frame_equal(run.model.predict(plain, engine="local"), run.predict())  # reads no weights
    with pytest.raises(GraphError, match="importance"):
        lotan.Graph(vertices, edges, vertex_weight=["importance"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({3: -1.0}, r"vertex_weight: 1 .*negative, NaN or infinite.*id 3"),
        ({5: np.nan}, "negative, NaN or infinite"),
        (dict.fromkeys(range(VERTICES), 0.0), "all training vertices have weight 0"),
    ],
)
def test_other_weights_are_refused(change: dict[int, float], message: str) -> None:
    data, weight = _weighted()
    given = weight.numpy().copy()
    given[list(change)] = list(change.values())
    arrays = {"label": data.label, "split": data.split, "vertex_weight": given}
    data.graph = lotan.Graph.from_arrays(data.x, *data.edge_index, **arrays)
    with pytest.raises(GraphError, match=message):
        _fit(_pair()[0], data, epochs=1)


def test_weights_are_of_the_type_with_labels() -> None:
    users = {"id": [0, 1, 2], "features": [[1.0], [2.0], [3.0]], "label": [0, 1, 0], "split": ["train"] * 3}
    graph = lotan.HeteroGraph(
        {"item": {"id": [0, 1], "features": [[1.0], [2.0]]}, "user": {**users, "vertex_weight": [0.0, 2.0, 3.0]}},
        {("item", "of", "user"): {"src": [0, 1], "dst": [0, 1]}},
    )
    assert sorted(graph.arrays().vertex_weight) == [0, 1, 1, 2, 3]
    assert graph.training_weights.classes == (3.0, 2.0)
