"""Messages that read attributes and types of edges: three epochs equal plain autograd's with PyG's layers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import lotan
from lotan.engines.choice import ENGINES
from tests.exactness import edge_models
from tests.exactness.edge_models import ATTRIBUTES, OUT, PAIRS, TYPES, WIDTH
from tests.night import at_night

pytestmark = pytest.mark.thorough

STEPS, RATE = 3, 0.05


@dataclass(frozen=True)
class Sample:
    """A random graph with labels, for Lotan and as tensors."""

    graph: lotan.Graph
    x: Tensor
    edges: tuple[Tensor, Tensor, Tensor, Tensor]  # index, weight, attributes, types
    label: Tensor
    train: Tensor


def sample(seed: int, vertices: int = 18, edges: int = 60, **options) -> Sample:
    """Isolated vertices, a hub, parallel edges with different attributes, and several self-loops at one vertex."""
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, vertices - 3, (2, edges))
    dst[: edges // 3] = 0
    src[-6:-3], dst[-6:-3] = 3, 4  # parallel
    src[-3:], dst[-3:] = (1, 1, 2), (1, 1, 2)  # self-loops
    weight = random.choice([0.5, 1.0, 2.0], edges).astype(np.float32)  # with ties among parallel edges
    attributes = random.choice(np.linspace(-1, 1, 5), (edges, ATTRIBUTES)).astype(np.float32)
    types = random.integers(0, TYPES, edges)
    # PyG keeps the last self-loop of a vertex, Lotan the greatest: here they are the same
    order = np.lexsort((*attributes.T[::-1], types, weight))
    src, dst, weight, attributes, types = (column[order] for column in (src, dst, weight, attributes, types))
    x = random.normal(size=(vertices, WIDTH)).astype(np.float32)
    label = random.integers(0, OUT, vertices)
    split = random.choice(np.array([0, 0, 1, -1], dtype=np.int8), vertices)
    split[0] = 0
    mixed = random.permutation(edges)
    given = (src[mixed], dst[mixed], label, split, weight[mixed])
    graph = lotan.Graph.from_arrays(x, *given, edge_attr=attributes[mixed], edge_type=types[mixed], **options)
    index = torch.from_numpy(np.stack([src, dst]))
    tensors = index, torch.from_numpy(weight), torch.from_numpy(attributes), torch.from_numpy(types)
    return Sample(graph, torch.from_numpy(x), tensors, torch.from_numpy(label), torch.from_numpy(split == 0))


def models(name: str, seed: int = 0) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Both forms with the same weights."""
    torch.manual_seed(seed)
    ours, truth = (make() for make in PAIRS[name])
    truth.load_state_dict(ours.state_dict())
    return ours, truth


def train_truth(model: torch.nn.Module, drawn: Sample, steps: int) -> list[float]:
    optimizer, losses = torch.optim.SGD(model.parameters(), RATE), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(drawn.x, *drawn.edges)[drawn.train], drawn.label[drawn.train])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check(name: str, drawn: Sample, seed: int = 0, steps: int = STEPS, **options) -> lotan.Run:
    ours, truth = models(name, seed)
    settings = {"epochs": steps, "eval_every": steps, "seed": 1, **options}  # the last weights are kept
    run = lotan.Trainer(ours, drawn.graph, optimizer=lotan.SGD(lr=RATE), **settings).fit()
    losses = train_truth(truth, drawn, steps)
    np.testing.assert_allclose([row["loss"] for row in run.history], losses, rtol=1e-5, atol=1e-5)
    expected = dict(truth.named_parameters())
    for key, found in ours.named_parameters():
        torch.testing.assert_close(found.detach(), expected[key].detach(), rtol=2e-5, atol=2e-5, msg=key)
    return run


@pytest.mark.parametrize("plan", ["auto", "general"])
@pytest.mark.parametrize("name", PAIRS)
def test_equals_autograd(name, plan):
    check(name, sample(3), engine="local", plan=plan)


@pytest.mark.parametrize("seed", range(6))
def test_equals_autograd_on_random_graphs(seed):
    name = list(PAIRS)[seed % len(PAIRS)]
    check(name, sample(seed, vertices=6 + 5 * seed, edges=12 + 20 * seed), seed, engine="local")


def test_equals_autograd_with_few_training_vertices():
    """Levels of vertices reorder the edges, and stages read those within a level only."""
    drawn = sample(11, vertices=60, edges=80)
    chosen = np.zeros(60, dtype=bool)
    chosen[[3, 4, 20]] = True
    split = np.where(chosen, 0, -1).astype(np.int8)
    graph = drawn.graph.relabelled(drawn.label.numpy(), split)
    run = check("deep", replace(drawn, graph=graph, train=torch.from_numpy(chosen)), engine="local")
    assert "prune_vertices" in run.report["plan"]["rules_fired"]


@pytest.mark.parametrize("reverse", [False, True])
def test_the_greatest_of_several_self_loops_is_kept(reverse):
    """Tables have no order, so that the last one, which PyG keeps, is not defined."""
    src, weight, attributes = np.zeros(3, dtype=int), np.array([2.0, 1.0, 2.0]), np.array([[1.0], [9.0], [3.0]])
    order = slice(None, None, -1) if reverse else slice(None)
    columns = {"weight": weight[order], "edge_attr": attributes[order]}
    label, split = np.zeros(2, dtype=np.float32), np.zeros(2, dtype=np.int8)
    graph = lotan.Graph.from_arrays(np.zeros((2, 1)), src, src, label, split, **columns)
    run = lotan.Trainer(Loops(), graph, epochs=1, engine="local", task="regression", optimizer=lotan.SGD(lr=0.0)).fit()
    assert np.concatenate(run.predict()["prediction"]).tolist() == [3.0 + 20.0, 7.0 + 10.0]


class Loops(lotan.nn.MessagePassing):
    """Ten times the weight of the self-loop and its attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, x, graph):
        return self.scale * self.propagate(graph, x, "self_loops", fill_value=7)

    def message(self, x_j, edge_weight, edge_attr):
        return edge_attr + 10 * edge_weight.unsqueeze(-1)


REFUSED = {
    "attributes": (
        {"edge_type": None},
        "Relational",
        "Relational.message names edge_type, but the graph's edges have none",
    ),
    "types": ({"edge_attr": None}, "GINE", "GINE.message names edge_attr, but the graph's edges have none"),
    "width": (
        {"edge_attr": np.ones((2, ATTRIBUTES + 1))},
        "GINE",
        "Linear got rows of width 4, but its in_features is 3",
    ),
    "relations": ({"edge_type": [0, TYPES]}, "Relational", "1 types that are not among the 4 of the model, 0 to 3"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_graph_that_does_not_fit_is_refused(fault):
    change, model, text = REFUSED[fault]
    given = {"edge_attr": np.ones((2, ATTRIBUTES)), "edge_type": [0, 1], **change}
    graph = lotan.Graph.from_arrays(np.ones((2, WIDTH)), [0, 1], [1, 0], [0, 1], [0, 0], **given)
    with pytest.raises(lotan.LotanError) as raised:
        lotan.Trainer(getattr(edge_models, model)(), graph, epochs=1, engine="local").fit()
    assert text in str(raised.value)


def test_a_saved_model_refuses_a_graph_that_does_not_fit(tmp_path):
    drawn = sample(3)
    check("edge-conditioned", drawn, engine="local").save(tmp_path)
    model, given = lotan.load(tmp_path), drawn.graph.arrays()
    ends = given.features, given.src, given.dst
    found = model.predict(drawn.graph, engine="local")
    assert len(found) == len(given.ids)
    faults = {
        "the model reads edge_attr, but the edges have no attributes": {"edge_type": given.edge_type},
        "the model reads edge_type, but the edges have no types": {"edge_attr": given.edge_attr},
        "rows of 2 numbers, but the model reads attributes of 3": {
            "edge_attr": given.edge_attr[:, :2],
            "edge_type": given.edge_type,
        },
        "types that are not among the 4 of layer 'kinds', 0 to 3": {
            "edge_attr": given.edge_attr,
            "edge_type": given.edge_type + 1,
        },
    }
    for text, columns in faults.items():
        with pytest.raises(lotan.LotanError) as raised:
            model.predict(lotan.Graph.from_arrays(*ends, **columns), engine="local")
        assert text in str(raised.value)


def test_an_engine_without_columns_of_edges_refuses_by_name(monkeypatch):
    monkeypatch.setitem(ENGINES, "rows", replace(ENGINES["rows"], abilities=()))
    with pytest.raises(lotan.LotanError, match="reads edge_attr; use engine local or blocks"):
        lotan.Trainer(edge_models.GINE(), sample(3).graph, epochs=1, engine="rows").explain()


def test_a_fill_value_and_a_type_of_added_loops_are_checked():
    with pytest.raises(lotan.LotanError, match="fill_value='median'; expected a number, or one of mean, add, max, min"):
        lotan.Trainer(edge_models.Looped("median"), sample(3).graph, engine="local").explain()
    with pytest.raises(lotan.LotanError, match="loop_type=None; expected the type of the self-loops"):
        lotan.Trainer(edge_models.Looped(loop_type=None), sample(3).graph, engine="local").explain()


def test_models_of_a_batch_equal_those_alone():
    drawn, settings = sample(3), {"engine": "local", "progress": False}
    runs = [lotan.Trainer(models("deep", seed)[0], drawn.graph, epochs=2, seed=1, **settings).fit() for seed in (0, 1)]
    members = [lotan.Member(models("deep", seed)[0], epochs=2, seed=1) for seed in (0, 1)]
    with lotan.ModelBatch(drawn.graph, members, **settings) as batch:
        batch.train()
        for number, alone in enumerate(runs):
            together = batch.run_of(number).history
            assert [row["loss"] for row in together] == [row["loss"] for row in alone.history]


def test_a_second_run_has_the_same_bits():
    runs = [lotan.Trainer(models("deep")[0], sample(3).graph, epochs=3, engine="local", seed=1).fit() for _ in range(2)]
    first, second = (run.model.weights for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)


ON_BLOCKS = [("GINE", 1), ("RGCN mean", 3), ("loops mean", 3), ("loops max", 1), ("deep", 7)]
ON_ROWS = [("GINE", 1), ("RGCN mean", 3), ("loops mean", 3), ("loops max", 2), ("deep", 4)]


@pytest.mark.spark
@pytest.mark.parametrize(("name", "partitions"), at_night(ON_BLOCKS, unless=[("deep", 7)]))
def test_blocks_equal_autograd(spark, name, partitions):
    check(name, sample(partitions), engine="blocks", partitions=partitions, chunk_rows=4)


@pytest.mark.spark
@pytest.mark.parametrize("name", at_night([("GINE",), ("loops mean",)], unless=[("loops mean",)]))
def test_blocks_equal_autograd_where_partitions_have_no_edges(spark, name):
    check(name, sample(5, vertices=8, edges=3), engine="blocks", partitions=6, chunk_rows=4)


@pytest.mark.nightly
@pytest.mark.spark
def test_blocks_equal_autograd_with_few_training_vertices(spark):
    drawn, chosen = sample(11, vertices=60, edges=80), np.isin(np.arange(60), [3, 4, 20])
    graph = drawn.graph.relabelled(drawn.label.numpy(), np.where(chosen, 0, -1).astype(np.int8))
    placed = replace(drawn, graph=graph, train=torch.from_numpy(chosen))
    run = check("deep", placed, engine="blocks", partitions=3, chunk_rows=4)
    assert "prune_vertices" in run.report["plan"]["rules_fired"]


@pytest.mark.spark
@pytest.mark.parametrize(("name", "partitions"), at_night(ON_ROWS, unless=[("loops mean", 3)]))
def test_rows_equal_autograd(spark, name, partitions):
    check(name, sample(partitions), engine="rows", partitions=partitions, chunk_rows=4, steps=2)


@pytest.mark.spark
@pytest.mark.nightly
def test_models_that_read_other_columns_on_a_graph_that_stays_loaded(spark):
    drawn, settings = sample(3), {"engine": "blocks", "partitions": 2}
    with lotan.persisted(drawn.graph):
        for name in ("GINE", "RGCN sum", "loops add", "GINE"):
            run = check(name, drawn, **settings)
    assert len(run.predict()) == len(drawn.x)


@pytest.mark.nightly
@pytest.mark.spark
def test_a_graph_in_spark_equals_autograd(spark):
    drawn = sample(5)
    vertices, edges = drawn.graph.frames(spark)
    split = "case split when 0 then 'train' when 1 then 'val' end as split"
    tables = vertices.selectExpr("id", "features", "label", split), edges
    names = {"weight": "weight", "edge_features": "edge_attr", "edge_type": "edge_type"}
    check("deep", replace(drawn, graph=lotan.Graph(*tables, **names)), engine="blocks", partitions=2)
