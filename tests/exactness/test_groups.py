"""Reductions by groups of vertices, and the greatest numbers of all rows, train as in plain torch and PyG."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch

import lotan
from lotan.batch.members import Member
from lotan.batch.model_batch import ModelBatch
from lotan.batches.examples import batches_of_epoch, examples_of
from lotan.batches.sampler import Sampler
from lotan.engines.choice import ENGINES, EngineChoice, check_able
from lotan.errors import ConfigurationError, GraphError, ModelError
from lotan.results.run import Run
from lotan.stages.randomness import Randomness
from planner import Options, compile_plan
from planner.cost.seconds import Pricing
from tests.exactness.groups import (
    ATTENTION,
    BY_GROUP,
    CLASSES,
    GROUPS,
    HIDDEN,
    LR,
    OF_ORDERED,
    WIDTH,
    grouped_graph,
    model_of,
    truth,
)
from tests.exactness.test_norms import assert_same_bits, state_of
from tests.night import at_night

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg
    from torch_geometric.utils import scatter

pytestmark = pytest.mark.thorough

EPOCHS = 3
SGD = lotan.SGD(lr=LR)


def assert_trains_as_torch(name: str, graph: lotan.Graph, **settings) -> Run:
    model = model_of(name)
    losses, state = truth(model, graph, EPOCHS)
    ours = copy.deepcopy(model)
    given = {"engine": "local", "epochs": EPOCHS, "optimizer": SGD, "progress": False, **settings}
    run = lotan.Trainer(ours, graph, **given).fit()
    assert [entry["loss"] for entry in run.history] == pytest.approx(losses, rel=2e-5)
    assert run.best_epoch == EPOCHS  # else the weights are those of an earlier epoch
    for key, value in ours.state_dict().items():
        torch.testing.assert_close(value, state[key], rtol=2e-4, atol=2e-5, msg=lambda text, key=key: f"{key}: {text}")
    return run


@pytest.mark.parametrize("name", [*BY_GROUP, "OverAll"])
def test_equals_plain_torch(name):
    assert_trains_as_torch(name, grouped_graph(grouped=name != "OverAll"), chunk_rows=16)


@pytest.mark.parametrize("name", OF_ORDERED)
def test_the_last_number_of_ordered_groups_is_the_greatest(name):
    assert_trains_as_torch(name, grouped_graph(ordered=True), chunk_rows=16)


@pytest.mark.parametrize(
    "name",
    at_night(
        [(name,) for name in ATTENTION], unless=[("GPSConv",), *((name,) for name in ATTENTION if "Attention" in name)]
    ),
)
def test_attention_equals_plain_torch(name):
    """Between all vertices, which are one group: PyG's own code takes them in the second dimension."""
    assert_trains_as_torch(name, grouped_graph(grouped="Attention" not in name, groups=1), chunk_rows=16)


def test_attention_within_several_groups_is_refused():
    for name in ("SGFormer", "GPSConv"):
        with pytest.raises(
            ModelError, match="attends between all vertices of a group, which is supported for one group"
        ):
            assert lotan.Trainer(model_of(name), grouped_graph(), engine="local").job


class Ties(torch.nn.Module):
    """The greatest numbers of groups in which many rows are equal. The gradient of `near` differs from row to row."""

    def __init__(self) -> None:
        super().__init__()
        self.near = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.last = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        made = self.near(x)
        equal = (made - made.detach()) + x.round().clamp(-1, 1) + 2  # whole numbers, with the gradient of `made`
        return self.last(pyg.global_max_pool(equal, batch)[batch] * x + equal.amax(0))


def test_equal_rows_share_the_gradient_of_their_greatest():
    """As in torch_geometric.utils.scatter and torch.amax: each of several equal rows has the same part of it."""
    torch.manual_seed(2)
    model, graph = Ties(), grouped_graph(seed=4)
    losses, state = truth(model, graph, EPOCHS)
    run = lotan.Trainer(model, graph, engine="local", epochs=EPOCHS, optimizer=SGD, progress=False, chunk_rows=8).fit()
    assert [entry["loss"] for entry in run.history] == pytest.approx(losses, rel=2e-5)
    torch.testing.assert_close(model.near.weight.detach(), state["near.weight"], rtol=2e-5, atol=2e-6)


def test_models_of_a_batch_have_the_bits_that_they_have_alone():
    graph, models = grouped_graph(seed=1), [model_of("max"), model_of("max"), model_of("VirtualNode")]
    models[1].first.reset_parameters()
    alone = [copy.deepcopy(model) for model in models]
    for model in alone:
        lotan.Trainer(model, graph, engine="local", epochs=2, optimizer=SGD, progress=False).fit()
    with ModelBatch(
        graph, [Member(model, SGD, seed=0, epochs=2) for model in models], engine="local", progress=False
    ) as batch:
        batch.train()
        for number, (mine, expected) in enumerate(zip(models, alone, strict=True)):
            batch.run_of(number)  # puts the best weights into the model
            assert_same_bits(state_of(mine), state_of(expected))


def tables(numbers: object) -> tuple[pd.DataFrame, pd.DataFrame]:
    vertices = pd.DataFrame({"id": range(4), "features": [[1.0, 2.0]] * 4, "label": [0, 1, 0, 1], "split": "train"})
    vertices["graph"] = numbers
    return vertices, pd.DataFrame({"src": [0, 1, 2], "dst": [1, 2, 3]})


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([0, 1, -1, 0], r"1 rows whose number is no whole number from 0 \(for example -1"),
        ([0.0, 1.0, None, 0.0], "example nan"),
        ([0.0, 1.0, float("nan"), 0.5], "graph"),
        ([0.0, 1.0, 1.5, 0.0], "example 1.5"),
        ([0, 1, 3, 0], "up to 3, but 1 of these have no vertex"),
        ([0, 70_000, 1, 0], "at most 65,536"),
        (["a", "b", "a", "b"], "graph"),
    ],
)
def test_bad_numbers_of_groups_are_refused(numbers, words):
    graph = lotan.Graph(*tables(numbers), batch="graph")
    with pytest.raises(GraphError, match=words):
        assert graph.groups


def test_the_column_of_groups_has_to_be_there():
    with pytest.raises(GraphError, match="group_id"):
        assert lotan.Graph(*tables([0, 0, 1, 1]), batch="group_id").groups
    with pytest.raises(ModelError, match=r"asks for 'batch'.*Graph\(..., batch=...\)"):
        assert lotan.Trainer(model_of("mean"), grouped_graph(grouped=False), engine="local").job


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda h, batch: pyg.global_add_pool(h, batch, size=2)[batch], "has 2 rows.*the graph has 4"),
        (lambda h, batch: torch.nn.functional.dropout(pyg.global_add_pool(h, batch))[batch], "dropout is applied to"),
        (lambda h, batch: pyg.global_add_pool(h, batch).gather(0, batch.view(-1, 1).expand_as(h)), r"write x\[batch\]"),
        (lambda h, batch: h[batch], "rows of vertices or edges by the number of a group"),
        (lambda h, batch: h * torch.bincount(batch)[batch].view(-1, 1), "bincount of batch"),
        (lambda h, batch: scatter(h, batch, dim=0, reduce="mul")[batch], "reduces groups by 'mul'"),
        (pyg.InstanceNorm(HIDDEN, track_running_stats=True), "running statistics of groups"),
    ],
)
def test_what_is_not_supported_is_named(function, words):
    model = model_of("mean")
    model.between = function if isinstance(function, torch.nn.Module) else Between(function)
    with pytest.raises(ModelError, match=words):
        assert lotan.Trainer(model, grouped_graph(), engine="local").job


class Between(torch.nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, h: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        return self.function(h, batch)


def by_hand(model, graph, regime, epochs):
    """Train by plain torch on the same samples, as PyG does on those of its loader."""
    arrays, steps = graph.arrays(), torch.optim.SGD(model.parameters(), LR)
    sampler, examples = Sampler(arrays), examples_of(arrays)
    features = torch.from_numpy(arrays.features)
    for epoch in range(1, epochs + 1):
        targets = batches_of_epoch(examples, arrays.keys, regime.batch_size, Randomness(regime.seed, epoch))
        for number, some in enumerate(targets):
            drawn = sampler.sample(some, regime.fanouts, Randomness(regime.seed, epoch, batch=number))
            rows, edges = features[drawn.rows], torch.from_numpy(np.stack([drawn.src, drawn.dst]))
            steps.zero_grad()
            out = model(rows[:, :-1], edges, rows[:, -1].long())[: len(some)]
            torch.nn.functional.cross_entropy(out, torch.from_numpy(arrays.label[some])).backward()
            steps.step()


def assert_batches_equal_plain_torch(name, fanouts, engine):
    """The rows of a group are those that the batch has. With few targets, some groups have none."""
    graph, regime, model = grouped_graph(seed=2), lotan.MiniBatch(5, fanouts, seed=3), model_of(name)
    theirs = copy.deepcopy(model)
    settings = {"epochs": 2, "eval_every": 0, "optimizer": lotan.SGD(lr=LR), "engine": engine, "progress": False}
    run = lotan.Trainer(model, graph, regime=regime, **settings).fit()
    by_hand(theirs, graph, regime, 2)
    for key, expected in theirs.state_dict().items():
        torch.testing.assert_close(run.model.weights[key], expected, rtol=1e-4, atol=1e-6, msg=key)
    data = graph.to_pyg()
    with torch.no_grad():
        rows = theirs.eval()(data.x, data.edge_index, data.batch).softmax(1)
    np.testing.assert_allclose(np.stack(run.predict()["probability"]), rows.numpy(), rtol=1e-4, atol=1e-5)


IN_BATCHES = ("max", "VirtualNode", "Attention", "GraphNorm")


@pytest.mark.parametrize(
    ("name", "fanouts"),
    [
        ("mean", ("all", "all")),
        *((name, (2, 2)) for name in IN_BATCHES),
        *(pytest.param(name, (2, 2), marks=pytest.mark.nightly) for name in BY_GROUP if name not in IN_BATCHES),
    ],
)
def test_mini_batches_reduce_the_rows_that_they_have(name, fanouts):
    assert_batches_equal_plain_torch(name, fanouts, "local")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["max", "VirtualNode"])
def test_mini_batches_on_blocks_reduce_the_rows_that_they_have(name, spark):
    assert_batches_equal_plain_torch(name, (2, 2), "blocks")


@pytest.mark.parametrize("name", ["OverAll", "SGFormerAttention"])
def test_mini_batches_are_refused(name):
    """They have some of the vertices only, whatever a model reduces over all of them."""
    graph = grouped_graph(grouped=False)
    with pytest.raises(ModelError, match="reads the rows of all vertices"):
        assert lotan.Trainer(model_of(name), graph, engine="local", regime=lotan.MiniBatch(8, (3, 3))).job


def test_tables_with_groups_train_as_arrays_do(tmp_path):
    graph, model = grouped_graph(), model_of("VirtualNode")
    data = graph.to_pyg()
    vertices = {"id": range(len(data.x)), "features": list(data.x.numpy()), "label": data.y.numpy()}
    vertices |= {"graph": data.batch.numpy(), "split": ["train" if one else None for one in data.train_mask]}
    edges = pd.DataFrame({"src": data.edge_index[0], "dst": data.edge_index[1]})
    pd.DataFrame(vertices).to_parquet(tmp_path / "vertices.parquet")
    edges.to_parquet(tmp_path / "edges.parquet")
    found = []
    for given in (
        graph,
        lotan.Graph.from_pyg(data),
        lotan.Graph(pd.DataFrame(vertices), edges, batch="graph"),
        lotan.Graph.read(tmp_path, batch="graph"),
    ):
        assert given.groups == GROUPS
        ours = copy.deepcopy(model)
        run = lotan.Trainer(ours, given, engine="local", epochs=1, progress=False).fit()
        found.append(state_of(ours))
        assert_same_bits(found[0], found[-1])
    run.save(tmp_path / "model")
    loaded = lotan.load(tmp_path / "model")
    assert len(loaded.predict(graph, engine="local")) == len(data.x)
    fewer = grouped_graph(seed=5, groups=2)
    data = fewer.to_pyg()
    with torch.no_grad():
        expected = ours.eval()(data.x, data.edge_index, data.batch).softmax(1)
    predicted = np.stack(loaded.predict(fewer, engine="local")["probability"])
    np.testing.assert_allclose(predicted, expected.numpy(), rtol=1e-4, atol=1e-6)
    with pytest.raises(GraphError, match="and this one has 5; predict parts of at most 4 groups"):
        loaded.predict(grouped_graph(groups=5), engine="local")
    with pytest.raises(ModelError, match="reduces by the groups of a column batch"):
        run.explain_vertex(0)
    with pytest.raises(GraphError, match="had 4 groups of vertices, and this one has no column batch"):
        loaded.predict(grouped_graph(grouped=False), engine="local")
    with pytest.raises(GraphError, match="save does not take a graph with groups"):
        graph.save(tmp_path / "saved")


def test_rows_refuses_what_each_vertex_would_have_a_copy_of():
    job = lotan.Trainer(model_of("mean"), grouped_graph(vertices=900, groups=800), engine="local").job
    options = Options(pricing=Pricing(ENGINES["rows"]))
    planned = compile_plan(job.train, job.evaluate, job.loss, job.statistics, options)
    with pytest.raises(
        ConfigurationError, match=r"at most 4,096 numbers, and here it has 4,800.*use engine local or blocks"
    ):
        check_able(EngineChoice("rows", "asked for"), planned)
