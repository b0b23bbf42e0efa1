"""A forward that returns more than its output: a loss of further arguments reads it, exactly as in plain torch."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import lotan
from lotan.errors import ModelError
from tests.tracing.test_pyg_layers import messy_graph

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch_geometric.nn import GCNConv


class Several(torch.nn.Module):
    """Returns classes, hidden rows, a number for each vertex, and a number for all of them."""

    def __init__(self, form: Callable[[Tensor, Tensor, Tensor, Tensor], Any], outputs: int = 3) -> None:
        super().__init__()
        self.first, self.second, self.form = GCNConv(6, 4), GCNConv(4, outputs), form

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        hidden = self.first(x, edge_index).tanh()
        output = self.second(hidden, edge_index)
        balance = (output.softmax(-1).mean(0) ** 2).sum()
        return self.form(output, hidden, hidden[:, 0], balance)


def loss(output: Tensor, label: Tensor, hidden: Tensor, first: Tensor, balance: Tensor) -> Tensor:
    own = functional.cross_entropy(output, label, reduction="none")
    return own + 0.1 * hidden.square().sum(-1) + 0.2 * first + 0.5 * balance


def squares(output: Tensor, label: Tensor, hidden: Tensor) -> Tensor:
    return (output - label).square() + hidden[:, :2]


def as_tuple(*found: Tensor) -> Any:
    return found


def as_dict(output: Tensor, hidden: Tensor, first: Tensor, balance: Tensor) -> Any:
    return {"balance": balance, "logits": output, "first": first, "hidden": hidden}


def output_of(found: Any) -> Tensor:
    result: Tensor = found["logits"] if isinstance(found, dict) else found[0]
    return result


def assert_trains_as_torch(model: torch.nn.Module, graph: lotan.Graph, function: Any, **settings: Any) -> lotan.Run:
    theirs, optimizer = copy.deepcopy(model), lotan.SGD(lr=0.1)
    run = lotan.Trainer(model, graph, epochs=3, optimizer=optimizer, loss=function, progress=False, **settings).fit()
    data, steps = graph.to_pyg(), torch.optim.SGD(theirs.parameters(), lr=0.1)
    train, names = data.train_mask, ("hidden", "first", "balance")[: function.__code__.co_argcount - 2]
    for epoch in run.history:
        found = theirs(data.x, data.edge_index)
        given = found if isinstance(found, dict) else dict(zip(("logits", *names), found, strict=False))
        further = [given[name][train] if given[name].dim() else given[name] for name in names]
        value = function(output_of(found)[train], data.y[train], *further).mean()
        assert epoch["loss"] == pytest.approx(value.item(), abs=1e-5)
        steps.zero_grad()
        value.backward()
        steps.step()
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], weight, rtol=0, atol=1e-5)
    return run


@pytest.mark.parametrize(("form", "plan"), [(as_tuple, "auto"), (as_dict, "general")])
def test_trains_as_in_torch(form: Any, plan: str, tmp_path: Path) -> None:
    graph, model = messy_graph(), Several(form)
    run = assert_trains_as_torch(model, graph, loss, engine="local", plan=plan)
    run.save(tmp_path / "model")
    data = graph.to_pyg()
    expected = output_of(model(data.x, data.edge_index)).softmax(-1).detach().numpy()
    for found in (run.predict(), lotan.load(tmp_path / "model").predict(graph, engine="local")):
        np.testing.assert_allclose(np.stack(found["probability"]), expected, atol=1e-5)


def test_regression_trains_as_in_torch() -> None:
    graph = messy_graph()
    targets = graph.relabelled(graph.arrays().features[:, :2], graph.arrays().split)
    assert_trains_as_torch(Several(as_tuple, outputs=2), targets, squares, engine="local")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["blocks", pytest.param("rows", marks=pytest.mark.nightly)])
def test_trains_as_in_torch_on_spark(engine: str, spark: object) -> None:
    assert_trains_as_torch(Several(as_tuple), messy_graph(), loss, engine=engine, partitions=3)


@pytest.mark.nightly
def test_members_of_a_batch_train_as_alone() -> None:
    graph, models = messy_graph(), [Several(as_tuple), Several(as_dict)]
    alone, settings = [copy.deepcopy(model) for model in models], {"engine": "local", "progress": False, "loss": loss}
    for model in alone:
        lotan.Trainer(model, graph, optimizer=lotan.SGD(lr=0.1), epochs=2, **settings).fit()
    members = [lotan.Member(model, lotan.SGD(lr=0.1), epochs=2) for model in models]
    with lotan.ModelBatch(graph, members, **settings) as batch:
        batch.train()
    for model, expected in zip(models, alone, strict=True):
        for name, value in expected.state_dict().items():
            assert torch.equal(model.state_dict()[name], value)


def test_validation_counts_the_output_alone() -> None:
    graph = messy_graph()
    split = np.where(graph.arrays().split < 0, 1, 0).astype(np.int8)
    run = lotan.Trainer(
        Several(as_tuple),
        graph.relabelled(graph.arrays().label, split),
        loss=loss,
        engine="local",
        epochs=2,
        progress=False,
        metrics=("roc_auc",),
    ).fit()
    predicted = run.predict().set_index("id")["prediction"].reindex(graph.arrays().ids).to_numpy()
    hits = (predicted == graph.arrays().label)[split == 1]
    assert run.metrics["val"]["accuracy"] == pytest.approx(hits.mean())


@pytest.mark.parametrize(
    ("form", "function", "text"),
    [
        (
            as_tuple,
            None,
            r"returns a tuple of 4; expected one tensor .*give loss= a function of \(output, label, \.\.\.\)",
        ),
        (lambda output, *_: output, loss, "returns one value, and the loss asks for hidden, first, balance beside"),
        (lambda output, *_: {"out": output}, squares, "returns a dict of out, and the loss asks for hidden"),
        (
            lambda output, *_: (output, output.t()),
            squares,
            r"returns hidden of shape .*; expected one number for all, or rows",
        ),
        (lambda output, *_: (output, None), squares, "returns NoneType for hidden; expected a tensor"),
    ],
)
def test_other_results_are_refused(form: Any, function: Any, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        lotan.Trainer(Several(form), messy_graph(), loss=function, engine="local", progress=False).explain()
