"""Reductions by groups of vertices, and the greatest numbers of all rows, train as in plain torch and PyG."""

from __future__ import annotations

import copy

import pandas as pd
import pytest
import torch

import lotan
from lotan.errors import GraphError, ModelError
from tests.exactness.groups import BY_GROUP, LR, Grouped, grouped_graph, model_of, truth

EPOCHS = 3


def assert_trains_as_torch(name: str, graph: lotan.Graph, **settings) -> lotan.results.run.Run:
    model = model_of(name)
    losses, state = truth(model, graph, EPOCHS)
    ours = copy.deepcopy(model)
    given = {"engine": "local", "epochs": EPOCHS, "optimizer": lotan.SGD(lr=LR), "progress": False, **settings}
    run = lotan.Trainer(ours, graph, **given).fit()
    assert [entry["loss"] for entry in run.history] == pytest.approx(losses, rel=2e-5)
    assert run.best_epoch == EPOCHS  # else the weights are those of an earlier epoch
    for key, value in ours.state_dict().items():
        torch.testing.assert_close(value, state[key], rtol=2e-4, atol=2e-5, msg=lambda text, key=key: f"{key}: {text}")
    return run


@pytest.mark.parametrize("name", [*BY_GROUP, "OverAll"])
def test_equals_plain_torch(name):
    assert_trains_as_torch(name, grouped_graph(grouped=name != "OverAll"), chunk_rows=16)
