"""Losses, class weights, unknown labels and further metrics in training, against the loop that everyone writes in torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional

import lotan
from lotan.errors import ConfigurationError, GraphError
from lotan.graph.labels import weights_of
from lotan.training.checkpoint import CheckpointError
from tests.training.test_trainer import CLASSES, VERTICES, Data, _curve, _fit, _losses, _pair, assert_same_checkpoint

pytestmark = pytest.mark.thorough

EPOCHS = 8


def _skewed(output: Tensor, label: Tensor) -> Tensor:
    error = output - label
    return torch.where(error > 0, error.square(), 3 * error.abs()).mean(1)


CASES: list[tuple[str, Any, Any]] = [
    (
        "classes",
        "cross_entropy(label_smoothing=0.1)",
        lambda o, y: functional.cross_entropy(o, y, label_smoothing=0.1),
    ),
    ("targets", torch.nn.HuberLoss(delta=0.5), lambda o, y: functional.huber_loss(o, y, delta=0.5)),
    ("targets", _skewed, lambda o, y: _skewed(o, y).mean()),
    (
        "labels",
        "bce_with_logits(pos_weight=2.0)",
        lambda o, y: functional.binary_cross_entropy_with_logits(o, y, pos_weight=torch.tensor(2.0)),
    ),
]


@pytest.mark.parametrize(("label", "given", "truth"), CASES, ids=["smoothing", "module", "function", "pos_weight"])
def test_a_loss_equals_that_of_torch(label: str, given: Any, truth: Any, tmp_path: Path) -> None:
    data = Data(label)
    ours, theirs = _pair()
    run = _fit(ours, data, epochs=EPOCHS, loss=given)
    assert _losses(run) == pytest.approx(_curve(theirs, data, truth, EPOCHS), rel=1e-4)
    with torch.no_grad():
        expected = truth(data.logits(ours)[data.rows(1)], torch.from_numpy(data.label)[data.rows(1)])
    best = run.history[run.best_epoch - 1]["metrics"]["val"]["loss"]
    assert best == pytest.approx(expected.item(), rel=1e-4)
    assert "loss" in run.report
    run.save(tmp_path)
    loaded = lotan.load(tmp_path)
    assert loaded.loss == run.model.loss
    pairs = zip(loaded.predict(data.graph, engine="local")["prediction"], run.predict()["prediction"], strict=True)
    assert all(np.array_equal(*pair) for pair in pairs)


@pytest.mark.parametrize(
    "own", [{}, {"plan": "general"}, {"disable": ["reuse_evaluation"]}, {"chunk_rows": 7}], ids=str
)
def test_a_function_gives_one_curve_by_every_plan(own: dict[str, Any]) -> None:
    data = Data("targets")
    settings = {"epochs": 4, "loss": _skewed}
    expected = _fit(_pair("GAT")[0], data, **settings)
    assert _losses(_fit(_pair("GAT")[0], data, **settings, **own)) == pytest.approx(_losses(expected), rel=1e-5)


def test_a_resumed_run_has_its_loss(tmp_path: Path) -> None:
    data = Data("targets")
    for epochs in (2, 5):
        _fit(_pair(dropout=0.5)[0], data, epochs=epochs, loss=_skewed, checkpoint_dir=tmp_path / "a", resume=True)
    _fit(_pair(dropout=0.5)[0], data, epochs=5, loss=_skewed, checkpoint_dir=tmp_path / "b")
    assert_same_checkpoint(tmp_path / "a" / "last.pt", tmp_path / "b" / "last.pt")
    for other in ("l1", lambda output, label: (output - label).abs()):
        with pytest.raises(CheckpointError, match="loss"):
            _fit(_pair(dropout=0.5)[0], data, epochs=6, loss=other, checkpoint_dir=tmp_path / "a", resume=True)


def test_members_of_a_batch_share_a_loss() -> None:
    data = Data("targets")
    members = [lotan.Member(_pair(hidden_channels=hidden)[0], epochs=4) for hidden in (4, 16)]
    with lotan.ModelBatch(data.graph, members, engine="local", progress=False, loss=_skewed) as batch:
        batch.train()
        runs = batch.runs()
    for number, hidden in enumerate((4, 16)):
        assert _losses(runs[number]) == _losses(_fit(_pair(hidden_channels=hidden)[0], data, epochs=4, loss=_skewed))


# -- two classes with one output --------------------------------------------------------------------------------------


def _binary_data() -> Data:
    data = Data()
    data.label = (data.label > 0).astype(np.int64)
    data.graph = lotan.Graph.from_arrays(data.x, *data.edge_index, label=data.label, split=data.split)
    return data


@pytest.mark.parametrize("loss", [None, "bce_with_logits", torch.nn.BCEWithLogitsLoss()])
def test_one_output_is_for_two_classes(loss: Any) -> None:
    data = _binary_data()
    ours, theirs = _pair(out_channels=1)
    run = _fit(ours, data, epochs=EPOCHS, loss=loss, monitor="roc_auc")

    def truth(output: Tensor, label: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(output[:, 0], label.float())

    assert _losses(run) == pytest.approx(_curve(theirs, data, truth, EPOCHS), rel=1e-4)
    with torch.no_grad():
        logits = data.logits(ours)[:, 0]
    rows = data.rows(1)
    found = run.metrics["val"]
    assert abs(found["roc_auc"] - roc_auc_score(data.label[rows], logits[rows])) <= found["roc_auc_error"] + 1e-9
    assert run.best_epoch == max(run.history, key=lambda entry: entry["metrics"]["val"]["roc_auc"])["epoch"]
    frame = run.predict()
    assert np.array_equal(frame["prediction"], (logits > 0).long())
    np.testing.assert_allclose(np.stack(frame["probability"])[:, 1], torch.sigmoid(logits), rtol=1e-5)
    np.testing.assert_allclose(np.stack(frame["probability"]).sum(1), 1, rtol=1e-6)
    assert run.report["graph"]["classes"] == 2


def test_one_output_predicts_the_texts_of_classes(tmp_path: Path) -> None:
    data = _binary_data()
    texts = np.array(["ham", "spam"])[data.label]
    graph = lotan.Graph.from_arrays(data.x, *data.edge_index, label=texts, split=data.split)
    settings: dict[str, Any] = {"engine": "local", "progress": False, "epochs": 3}
    run = lotan.Trainer(_pair(out_channels=1)[0], graph, **settings).fit()
    run.save(tmp_path)
    found = lotan.load(tmp_path).predict(graph, engine="local")
    assert found["prediction"].tolist() == run.predict()["prediction"].tolist()
    assert set(found["prediction"]) <= {"ham", "spam"}
    assert np.array_equal(found["prediction"] == "spam", np.stack(found["probability"])[:, 1] > 0.5)


def test_one_output_for_three_classes_is_refused() -> None:
    with pytest.raises(GraphError, match="not among the model's 2 classes"):
        _fit(_pair(out_channels=1)[0], Data(), epochs=1)


# -- class weights ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "as_list"),
    [
        ({0: 10.0, 1: 1.0, 2: 0.5}, [10.0, 1.0, 0.5]),
        ({2: 0.25}, [1.0, 1.0, 0.25]),
        ({np.int64(1): 4}, [1.0, 4.0, 1.0]),
        (np.array([0.5, 1.0, 3.0]), [0.5, 1.0, 3.0]),
    ],
)
def test_class_weights_are_taken_by_key(given: Any, as_list: list[float]) -> None:
    data = Data()
    expected = _fit(_pair()[0], data, epochs=3, class_weights=as_list)
    assert _losses(_fit(_pair()[0], data, epochs=3, class_weights=given)) == _losses(expected)


def test_class_weights_by_the_texts_of_classes() -> None:
    data = Data()
    texts = np.array(["ham", "eggs", "spam"])[data.label]  # in alphabetic order, they are classes 1, 0 and 2
    graph = lotan.Graph.from_arrays(data.x, *data.edge_index, label=texts, split=data.split)
    settings: dict[str, Any] = {"engine": "local", "progress": False, "epochs": 3, "optimizer": lotan.Adam(lr=0.01)}
    by_text, in_order = (
        lotan.Trainer(_pair()[0], graph, class_weights=given, **settings).fit()
        for given in ({"eggs": 4.0, "spam": 0.5}, [4.0, 1.0, 0.5])
    )
    assert _losses(by_text) == _losses(in_order)
    assert weights_of(
        pd.Series([0.5, 4.0], index=["spam", "eggs"]), "classification", 3, list, graph.labels.classes
    ) == (
        4.0,
        1.0,
        0.5,
    )
    with pytest.raises(ConfigurationError, match="a weight for 'bacon', but the classes are eggs, ham, spam"):
        lotan.Trainer(_pair()[0], graph, class_weights={"bacon": 1.0}, **settings).fit()


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    data = Data()
    label = data.label[data.split == 0]
    weights = compute_class_weight("balanced", classes=np.arange(CLASSES), y=label)
    run = _fit(_pair()[0], data, epochs=3, class_weights="balanced")
    assert run.model.loss.class_weights == pytest.approx(tuple(weights))
    assert _losses(run) == pytest.approx(_losses(_fit(_pair()[0], data, epochs=3, class_weights=list(weights))))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({0.5, 1.0, 2.0}, "a set, which has no order"),
        ({3: 1.0}, "a weight for 3, but there are 3 classes"),
        ({-1: 1.0}, "a weight for -1"),
        ({"0": 1.0}, "a weight for '0', but there are 3 classes"),
        ({0.5: 1.0}, "the key 0.5"),
        ({True: 1.0}, "the key True"),
        ({0: -1.0}, "finite numbers"),
        ({}, "finite numbers"),
        ("even", "balanced"),
        ([1.0, 2.0], "expected 3"),
        (3.0, "class_weights is 3.0"),
    ],
)
def test_other_class_weights_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        _fit(_pair()[0], Data(), epochs=1, class_weights=given)


def test_label_weights_need_a_number_for_each_label() -> None:
    def of_vertex(output: Tensor, label: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(output, label, reduction="none").sum(1)

    with pytest.raises(ConfigurationError, match="one number for each vertex"):
        _fit(_pair()[0], Data("labels"), epochs=1, loss=of_vertex, class_weights=[1.0, 2.0, 3.0])


def test_balanced_is_for_classes() -> None:
    with pytest.raises(ConfigurationError, match="pos_weight"):
        _fit(_pair()[0], Data("labels"), epochs=1, class_weights="balanced")


# -- unknown labels ---------------------------------------------------------------------------------------------------


def _partly_known() -> Data:
    data = Data("labels")
    generator = np.random.default_rng(5)
    data.label[generator.random(data.label.shape) < 0.3] = np.nan
    data.label[0] = np.nan
    data.split[0] = -1
    data.label[1:, 0] = np.where(np.isnan(data.label[1:]).all(1), 1.0, data.label[1:, 0])
    data.graph = lotan.Graph.from_arrays(data.x, *data.edge_index, label=data.label, split=data.split)
    return data


def test_unknown_entries_count_in_nothing() -> None:
    data = _partly_known()
    ours, theirs = _pair()
    run = _fit(ours, data, epochs=EPOCHS, metrics=["roc_auc", "f1"])

    def truth(output: Tensor, label: Tensor) -> Tensor:
        known = ~label.isnan()
        return functional.binary_cross_entropy_with_logits(output[known], label[known])

    assert run.report["task"] == "multilabel"
    assert _losses(run) == pytest.approx(_curve(theirs, data, truth, EPOCHS), rel=1e-4)
    assert {"f1_0", "f1_1", "f1_2", "roc_auc", "roc_auc_error"} <= set(run.metrics["val"])


def test_null_entries_in_tables_are_unknown() -> None:
    import pandas as pd

    data = _partly_known()
    entries = [[None if np.isnan(one) else one for one in row] for row in data.label]
    vertices = pd.DataFrame(
        {
            "id": np.arange(VERTICES),
            "features": list(data.x),
            "label": [None if all(one is None for one in row) else row for row in entries],
            "split": [[None, "train", "val", "test"][code + 1] for code in data.split],
        }
    )
    edges = pd.DataFrame({"src": data.edge_index[0], "dst": data.edge_index[1]})
    graph = lotan.Graph(vertices, edges)
    np.testing.assert_array_equal(graph.arrays().label, data.label)
    run = lotan.Trainer(
        _pair()[0], graph, engine="local", progress=False, epochs=3, optimizer=lotan.Adam(lr=0.01)
    ).fit()
    assert _losses(run) == _losses(_fit(_pair()[0], data, epochs=3))


def test_unknown_entries_are_saved(tmp_path: Path) -> None:
    data = _partly_known()
    data.graph.save(tmp_path)
    np.testing.assert_array_equal(lotan.Graph.read(tmp_path).arrays().label, data.label)
    assert lotan.Graph.read(tmp_path).labels == data.graph.labels


def test_partly_unknown_targets_are_refused() -> None:
    data = Data("targets")
    data.label[3, 1] = np.nan
    data.split[3] = 0
    graph = lotan.Graph.from_arrays(data.x, *data.edge_index, label=data.label, split=data.split)
    with pytest.raises(GraphError, match="NaN"):
        lotan.Trainer(_pair()[0], graph, engine="local", progress=False).fit()


# -- metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("monitor", ["roc_auc", "average_precision", "f1_2", "macro_f1", "loss"])
def test_any_metric_can_be_monitored(monitor: str) -> None:
    run = _fit(_pair()[0], Data(), epochs=6, monitor=monitor, patience=4)
    better = min if monitor == "loss" else max
    best = better(run.history, key=lambda entry: entry["metrics"]["val"][monitor])
    assert run.best_epoch == best["epoch"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metrics": ["area"]}, "unknown metric 'area'; further ones are "),
        ({"metrics": ["auc"]}, "'auc', which classification has not; it has accuracy, macro_f1, roc_auc"),
        ({"metrics": "roc_auc"}, "a list of names"),
        ({"monitor": "f1_7"}, "there are 3 classes"),
        ({"monitor": "mse"}, "classification has accuracy, macro_f1, roc_auc, average_precision, loss, f1_0"),
        ({"metrics": ["r2"]}, "'r2', which classification has not"),
    ],
)
def test_unknown_metrics_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        _fit(_pair()[0], Data(), epochs=1, **settings)


def test_metrics_do_not_depend_on_chunks() -> None:
    runs = [_fit(_pair()[0], Data(), epochs=2, metrics=["roc_auc"], chunk_rows=rows) for rows in (5, 1024)]
    first, second = (run.metrics["val"] for run in runs)
    assert first["roc_auc"] == pytest.approx(second["roc_auc"], abs=first["roc_auc_error"] + second["roc_auc_error"])
