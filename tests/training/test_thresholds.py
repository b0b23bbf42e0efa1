"""Thresholds of labels, and of two classes with one output: in metrics and in predictions, with a saved model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lotan
from lotan.errors import ConfigurationError
from lotan.planning.losses import loss_of
from lotan.settings.config import make_config
from lotan.stages.codec import decode_loss, encode_loss

QUICK = {"engine": "local", "epochs": 2, "progress": False}


def graph_of(label: np.ndarray) -> lotan.Graph:
    random = np.random.default_rng(0)
    count = len(label)
    src, dst = random.integers(0, count, (2, 4 * count))
    return lotan.Graph.from_arrays(random.random((count, 4)), src, dst, label, np.arange(count) % 3)


BINARY = graph_of(np.random.default_rng(1).integers(0, 2, 60))
LABELS = graph_of(np.random.default_rng(2).integers(0, 2, (60, 2)).astype(np.float32))


def trained(graph: lotan.Graph, outputs: int, **settings: object) -> lotan.results.run.Run:
    torch.manual_seed(0)
    return lotan.Trainer(lotan.nn.GCN(4, 8, 2, outputs), graph, **QUICK, **settings).fit()


@pytest.mark.parametrize(("graph", "outputs", "single"), [(BINARY, 1, True), (LABELS, 2, True), (LABELS, 2, False)])
def test_metrics_and_predictions_follow_the_threshold(graph, outputs, single, tmp_path) -> None:
    usual = np.stack(trained(graph, outputs).predict()["probability"])[:, -outputs:]
    threshold = float(np.median(usual[:, 0])) if single else np.median(usual, axis=0).tolist()
    run = trained(graph, outputs, threshold=threshold)
    run.save(tmp_path)
    found = lotan.load(tmp_path).predict(graph, engine="local")
    shares = np.stack(found["probability"])[:, -outputs:]
    expected = (shares > np.asarray(threshold)).astype(int)
    given = np.stack(found["prediction"]).reshape(len(found), -1)
    assert given.tolist() == expected.tolist()
    arrays = graph.arrays()
    val, truth = arrays.split == 1, arrays.label.reshape(len(found), -1)
    assert run.metrics["val"]["accuracy"] == pytest.approx((expected == truth).all(1)[val].mean())
    assert 0 < expected[:, 0].mean() < 1


def test_other_tasks_and_other_numbers_are_refused() -> None:
    for given in (0, 1.0, "0.5", [], [0.5, 2], True, {0: 0.5}):
        with pytest.raises(ConfigurationError, match=r"threshold is .*expected a number above 0 and below 1"):
            make_config({"threshold": given})
    with pytest.raises(ConfigurationError, match=r"the task is classification with 2 outputs: leave threshold out"):
        lotan.Trainer(lotan.nn.GCN(4, 8, 2, 2), BINARY, threshold=0.3, **QUICK).fit()
    with pytest.raises(ConfigurationError, match=r"threshold has 3 numbers, but there are 2 labels"):
        lotan.Trainer(lotan.nn.GCN(4, 8, 2, 2), LABELS, threshold=[0.1, 0.2, 0.3], **QUICK).fit()


def test_a_loss_keeps_its_thresholds() -> None:
    loss = loss_of(LABELS, "multilabel", 2, make_config({"threshold": 0.3}))
    assert loss.thresholds == (0.3, 0.3)
    assert decode_loss(encode_loss(loss)) == loss
    assert (
        decode_loss({name: value for name, value in encode_loss(loss).items() if name != "thresholds"}).thresholds
        is None
    )
