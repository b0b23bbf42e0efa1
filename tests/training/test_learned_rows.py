"""Learned rows train as torch's own embeddings do: in full batch with any optimizer, and in mini-batches by rows."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import functional

import lotan
from lotan.batches.examples import batches_of_epoch, examples_of
from lotan.batches.sampler import Sampler
from lotan.cli import main
from lotan.errors import ConfigurationError, GraphError, ModelError
from lotan.settings.optimizers import OPTIMIZERS
from lotan.stages.randomness import Randomness
from planner.cost.seconds import Pricing
from planner.local_memory import local_bytes
from planner.steps.learned_rows import learned_bytes
from tests.night import at_night

pytestmark = pytest.mark.thorough

VERTICES, EDGES, WIDTH, CLASSES = 50, 160, 6, 3


@dataclass
class Drawn:
    """A random graph, and its parts in the order of its ids."""

    graph: lotan.Graph
    index: Tensor
    label: Tensor
    train: Tensor
    x: Tensor
    tables: tuple[pd.DataFrame, pd.DataFrame]  # as they were given


def drawn(seed: int, share: float = 0.3, features: bool = False) -> Drawn:
    """A graph without features, given as shuffled tables with string ids, whose order is not that of their numbers."""
    rng = np.random.default_rng(seed)
    ids = np.array([f"v{number}" for number in range(VERTICES)], dtype=object)
    kinds = {"split": rng.choice(["train", "val", "test"], VERTICES, p=[share, 0.5 - share / 2, 0.5 - share / 2])}
    columns = {"id": ids, "label": rng.integers(0, CLASSES, VERTICES), **kinds}
    x = rng.normal(size=(VERTICES, 2)).astype(np.float32)
    if features:
        columns["features"] = list(x)
    ends = rng.integers(0, VERTICES, (2, EDGES))
    vertices = pd.DataFrame(columns).sample(frac=1, random_state=seed)
    edges = pd.DataFrame({"src": ids[ends[0]], "dst": ids[ends[1]]}).sample(frac=1, random_state=seed)
    order = np.argsort(ids)
    place = np.argsort(order)
    by_id = pd.DataFrame(columns).iloc[order]
    split = torch.tensor((by_id["split"] == "train").to_numpy())
    label, index = torch.tensor(by_id["label"].to_numpy()), torch.tensor(place[ends])
    return Drawn(lotan.Graph(vertices, edges), index, label, split, torch.tensor(x[order]), (vertices, edges))


class Embedded(torch.nn.Module):
    """Two layers on learned rows."""

    def __init__(self, features: int = 0) -> None:
        super().__init__()
        self.rows = lotan.nn.LearnedFeatures(WIDTH)
        self.first = lotan.nn.GCNConv(WIDTH + features, 5)
        self.second = lotan.nn.SAGEConv(5, CLASSES)

    def forward(self, x: Tensor, graph: lotan.nn.EdgeIndex) -> Tensor:
        rows = self.rows(graph)
        if self.first.in_channels > WIDTH:
            rows = torch.cat([x, rows], dim=1)
        return self.second(self.first(rows, graph).relu(), graph)


def planned(number: int, **options: Any) -> tuple[Embedded, Drawn, lotan.Trainer]:
    torch.manual_seed(number)  # of the initial weights
    found, features = drawn(number, options.pop("share", 0.3)), options.pop("features", False)
    if features:
        found = drawn(number, features=True)
    model = Embedded(2 if features else 0)
    trainer = lotan.Trainer(model, found.graph, **{"progress": False, "epochs": 4, "eval_every": 0, **options})
    assert trainer.plan is not None
    return model, found, trainer


def in_torch(model: Embedded, found: Drawn, optimizer: torch.optim.Optimizer, epochs: int) -> list[float]:
    """Train the model eagerly: losses before each step."""
    graph, losses = lotan.nn.EdgeIndex(found.index, num_vertices=VERTICES), []
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(found.x, graph)[found.train], found.label[found.train])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def assert_alike(model: torch.nn.Module, other: torch.nn.Module, tolerance: float = 2e-5) -> None:
    for name, one in other.named_parameters():
        assert torch.allclose(model.get_parameter(name), one, rtol=tolerance, atol=tolerance), name


BY_DAY = [("adam",), ("adagrad",), ("rmsprop",)]


@pytest.mark.parametrize("name", at_night([(name,) for name in OPTIMIZERS], BY_DAY))
def test_a_full_batch_equals_torch(name: str) -> None:
    """Rows in the order of ids, without features, dense gradients."""
    optimizer = OPTIMIZERS[name](lr=0.01)
    model, found, trainer = planned(1, optimizer=optimizer)
    other = deepcopy(model)
    run = trainer.fit()
    expected = in_torch(other, found, optimizer.build(dict(other.named_parameters())), 4)
    assert [entry["loss"] for entry in run.history] == pytest.approx(expected, rel=1e-5)
    # a small gradient near 0 has any sign, and Rprop steps by the sign alone
    assert_alike(model, other, 5e-3 if name == "rprop" else 5e-5)


@pytest.mark.parametrize("options", [{"share": 0.06, "disable": ("reuse_evaluation",)}, {"features": True}, {"plan": "general"}],
                         ids=["pruned", "beside features", "general"])  # fmt: skip
def test_other_plans_equal_torch(options: dict[str, Any]) -> None:
    model, found, trainer = planned(2, optimizer=lotan.SGD(lr=0.5), **options)
    if "share" in options:
        assert any(step.within is not None for step in trainer.job.plan.train)
    other = deepcopy(model)
    run = trainer.fit()
    expected = in_torch(other, found, torch.optim.SGD(other.parameters(), 0.5), 4)
    assert [entry["loss"] for entry in run.history] == pytest.approx(expected, rel=1e-5)
    assert_alike(model, other)


class Messages(lotan.nn.MessagePassing):
    """A layer whose messages have a parameter, so that learned rows are read at the sources of edges."""

    def __init__(self) -> None:
        super().__init__(aggr="sum")
        self.both = torch.nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, x: Tensor, graph: lotan.nn.EdgeIndex) -> Tensor:
        return self.propagate(graph, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return self.both(torch.cat([x_i, x_j], dim=1)).tanh()


class Normed(torch.nn.Module):
    """Reductions over all vertices of the rows themselves, and a second reading of them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.sage = torch.nn.BatchNorm1d(WIDTH), lotan.nn.SAGEConv(WIDTH, WIDTH)
        self.last = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, graph: lotan.nn.EdgeIndex) -> Tensor:
        return self.last(self.norm(x) + self.sage(x, graph).relu() + x)


ENCODERS: dict[str, Any] = {
    "attention": lambda: lotan.nn.GAT(WIDTH, 4, 2, CLASSES, heads=2),
    "maximum": lambda: lotan.nn.GraphSAGE(WIDTH, 4, 2, CLASSES, aggr="max"),
    "own messages": Messages,
    "norms and two readers": Normed,
    "no edges": lambda: torch.nn.Linear(WIDTH, CLASSES),
}


class Around(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.rows, self.encoder, self.takes = lotan.nn.LearnedFeatures(WIDTH), ENCODERS[name](), name != "no edges"

    def forward(self, x: Tensor, graph: lotan.nn.EdgeIndex) -> Tensor:
        return self.encoder(self.rows(graph), graph) if self.takes else self.encoder(self.rows(graph))


@pytest.mark.parametrize("name", list(ENCODERS))
def test_other_encoders_equal_torch(name: str) -> None:
    torch.manual_seed(1)
    found, model = drawn(10), Around(name)
    trainer = lotan.Trainer(model, found.graph, optimizer=lotan.SGD(lr=0.3), epochs=3, eval_every=0, progress=False)
    assert trainer.plan is not None
    other = deepcopy(model)
    run = trainer.fit()
    expected = in_torch(other, found, torch.optim.SGD(other.parameters(), 0.3), 3)
    assert [entry["loss"] for entry in run.history] == pytest.approx(expected, rel=1e-5)
    assert_alike(model, other)


def test_frozen_rows_do_not_move() -> None:
    torch.manual_seed(1)
    found, model = drawn(10), Embedded()
    model.rows.requires_grad_(False)
    trainer = lotan.Trainer(model, found.graph, optimizer=lotan.Adam(lr=0.1), epochs=2, progress=False)
    assert "LearnedRowsGradient" not in trainer.explain()
    before, weight = model.rows.weight.clone(), model.first.lin.weight.clone()
    trainer.fit()
    assert torch.equal(model.rows.weight, before)
    assert not torch.equal(model.first.lin.weight, weight)


def test_the_first_rows_depend_on_seed_and_id_alone() -> None:
    model, found, _ = planned(3)
    again = planned(3)[0].rows.weight
    assert torch.equal(model.rows.weight, again)
    half = found.graph.arrays().ids[::2]
    fewer = lotan.Graph(
        pd.DataFrame({"id": half, "label": 0, "split": "train"}), pd.DataFrame({"src": half[:1], "dst": half[1:2]})
    )
    smaller = Embedded()
    assert lotan.Trainer(smaller, fewer, progress=False).plan is not None
    assert torch.equal(smaller.rows.weight, model.rows.weight[::2])
    assert not torch.equal(planned(3, seed=1)[0].rows.weight, again)
    assert float(again.std()) == pytest.approx(WIDTH**-0.5, rel=0.1)


class ByWeight(torch.nn.Module):
    """A model of torch and PyG alone, which knows how many vertices there are."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VERTICES, WIDTH)
        self.conv = pyg.SAGEConv(WIDTH, CLASSES)

    def forward(self, edge_index: Tensor) -> Tensor:
        return self.conv(self.embedding.weight, edge_index)


class ByRange(ByWeight):
    def forward(self, edge_index: Tensor) -> Tensor:
        return self.conv(self.embedding(torch.arange(VERTICES)), edge_index)


class ByNumbers(ByWeight):
    def forward(self, n_id: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        return self.conv(self.embedding(n_id), edge_index)


@pytest.mark.parametrize("kind", [ByWeight, ByRange, ByNumbers])
def test_embeddings_of_torch_are_learned_rows(kind: type[ByWeight]) -> None:
    found = drawn(4)
    torch.manual_seed(0)
    model = kind()
    other = deepcopy(model)
    run = lotan.Trainer(model, found.graph, optimizer=lotan.Adam(lr=0.01), epochs=3, eval_every=0, progress=False).fit()
    optimizer, losses = torch.optim.Adam(other.parameters(), 0.01), []
    given = (torch.arange(VERTICES), found.index) if kind is ByNumbers else (found.index,)
    for _ in range(3):
        optimizer.zero_grad()
        loss = functional.cross_entropy(other(*given)[found.train], found.label[found.train])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert [entry["loss"] for entry in run.history] == pytest.approx(losses, rel=1e-5)
    assert_alike(model, other)


@pytest.mark.parametrize(
    ("given", "words"),
    [({"padding_idx": 0}, "leave padding_idx out"), ({"max_norm": 1.0}, "embedding_renorm_ writes to a tensor")],
)
def test_embeddings_that_are_more_than_rows(given: dict[str, Any], words: str) -> None:
    model = ByNumbers()
    model.embedding = torch.nn.Embedding(VERTICES, WIDTH, **given)
    with pytest.raises(ModelError, match=words):
        assert lotan.Trainer(model, drawn(4).graph, progress=False).plan


@pytest.mark.parametrize("kind", [ByWeight, ByNumbers])
def test_an_embedding_of_another_graph_is_named(kind: type[ByWeight]) -> None:
    model = kind()
    model.embedding = torch.nn.Embedding(VERTICES + 1, WIDTH)
    words = (
        f"embedding.weight has {VERTICES + 1} rows, and the graph has {VERTICES} vertices: an embedding is taken for"
    )
    with pytest.raises(ModelError, match=words):
        assert lotan.Trainer(model, drawn(4).graph, progress=False).plan


def test_a_lookup_of_some_rows_is_refused() -> None:
    class Some(ByWeight):
        def forward(self, n_id: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
            return self.conv(self.embedding(n_id.flip(0)), edge_index)

    with pytest.raises(ModelError, match="numbers of the vertices as values"):
        assert lotan.Trainer(Some(), drawn(4).graph, progress=False).plan


def test_an_embedding_of_something_else_is_no_learned_row() -> None:
    """It happens to have as many rows as there are vertices, but is looked up by the types of edges."""

    class Kinds(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(VERTICES, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
            return torch.zeros(x.size(0), CLASSES).index_add(0, edge_index[1], self.embedding(edge_type))

    arrays = drawn(4).graph.arrays()
    ends = arrays.src, arrays.dst
    given = {"label": arrays.label, "split": arrays.split, "edge_type": np.arange(EDGES) % VERTICES}
    graph = lotan.Graph.from_arrays(np.ones((VERTICES, 1)), *ends, **given)
    trainer = lotan.Trainer(Kinds(), graph, epochs=1, progress=False)
    assert not trainer.job.train.learned


# --- mini-batches -----------------------------------------------------------------------------------------------------

ROW_WISE = {
    "adam": (
        lotan.Adam(lr=0.02),
        lambda rows, rest: [torch.optim.SparseAdam(rows, 0.02), torch.optim.Adam(rest, 0.02)],
    ),
    "adagrad": (lotan.Adagrad(lr=0.1), lambda rows, rest: [torch.optim.Adagrad([*rows, *rest], 0.1)]),
    "sgd": (lotan.SGD(lr=0.3), lambda rows, rest: [torch.optim.SGD([*rows, *rest], 0.3)]),
}
REGIME = lotan.MiniBatch(4, (2, 3), seed=9)


class InPyg(torch.nn.Module):
    """The same model of torch and PyG alone, with sparse gradients of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Embedding(VERTICES, WIDTH, sparse=True)
        self.sage = pyg.GraphSAGE(WIDTH, 5, 2, CLASSES)

    def forward(self, n_id: Tensor, edge_index: Tensor) -> Tensor:
        return self.sage(self.rows(n_id), edge_index)


class Sage(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = lotan.nn.LearnedFeatures(WIDTH)
        self.sage = lotan.nn.GraphSAGE(WIDTH, 5, 2, CLASSES)

    def forward(self, x: Tensor, graph: lotan.nn.EdgeIndex) -> Tensor:
        return self.sage(self.rows(graph), graph)


@pytest.mark.parametrize(("name", "clip"), [("adam", None), ("adam", 0.05), ("adagrad", None), ("sgd", None)])
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_mini_batches_equal_sparse_embeddings_of_torch(name: str, clip: float | None) -> None:
    ours_of, theirs_of = ROW_WISE[name]
    torch.manual_seed(0)
    found, theirs, ours = drawn(5), InPyg(), Sage()
    settings: dict[str, Any] = {"optimizer": ours_of, "regime": REGIME, "clip_grad_norm": clip}
    trainer = lotan.Trainer(ours, found.graph, epochs=2, eval_every=0, progress=False, **settings)
    assert trainer.plan is not None  # which draws the rows
    ours.sage.load_state_dict(theirs.sage.state_dict())
    with torch.no_grad():
        theirs.rows.weight.copy_(ours.rows.weight)
    before = ours.rows.weight.detach().clone()
    run = trainer.fit()
    optimizers = theirs_of([theirs.rows.weight], list(theirs.sage.parameters()))
    arrays, touched = found.graph.arrays(), set()
    sampler = Sampler(arrays)
    for epoch in (1, 2):
        losses = 0.0
        batches = batches_of_epoch(examples_of(arrays), arrays.keys, 4, Randomness(9, epoch))
        for number, targets in enumerate(batches):
            sample = sampler.sample(targets, REGIME.fanouts, Randomness(9, epoch, batch=number))
            edges, count = torch.from_numpy(np.stack([sample.src, sample.dst])), len(targets)
            theirs.zero_grad()
            output = theirs(torch.from_numpy(sample.rows), edges)[:count]
            loss = functional.cross_entropy(output, found.label[targets])
            loss.backward()
            if clip is not None:
                theirs.rows.weight.grad = theirs.rows.weight.grad.coalesce()
                grads = [theirs.rows.weight.grad.values(), *(one.grad for one in theirs.sage.parameters())]
                norm = torch.cat([one.flatten() for one in grads]).norm()
                for one in grads:
                    one.mul_(min(1.0, clip / (float(norm) + 1e-6)))
            for optimizer in optimizers:
                optimizer.step()
            losses += loss.item() * count
            touched.update(sample.rows.tolist())
        assert run.history[epoch - 1]["loss"] == pytest.approx(losses / int(found.train.sum()), rel=1e-5)
    assert torch.allclose(ours.rows.weight, theirs.rows.weight, rtol=1e-4, atol=1e-6)
    untouched = sorted(set(range(VERTICES)) - touched)
    assert torch.equal(ours.rows.weight[untouched], before[untouched])
    assert_alike(ours.sage, theirs.sage)


def test_one_batch_of_all_edges_is_the_full_batch() -> None:
    """Every row is read, so that even lazy Adam moves as Adam does."""
    regime = lotan.MiniBatch(1_000, ("all", "all"))
    model, found, trainer = planned(6, optimizer=lotan.SGD(lr=0.5), regime=regime, epochs=2)
    other = deepcopy(model)
    run = trainer.fit()
    expected = in_torch(other, found, torch.optim.SGD(other.parameters(), 0.5), 2)
    assert [entry["loss"] for entry in run.history] == pytest.approx(expected, rel=1e-5)
    assert_alike(model, other)


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [(lotan.RMSprop(lr=0.1), "RMSprop has no form for the learned rows 'rows.weight'.*Adam, Adagrad, SGD"),
     (lotan.Adam(weight_decay=0.1), r"groups={'rows': {'weight_decay': 0.0}}"),
     (lotan.SGD(momentum=0.9), r"SGD\(momentum=0.9\)")],
)  # fmt: skip
def test_optimizers_that_move_rows_without_a_gradient(optimizer: Any, words: str) -> None:
    *_, trainer = planned(6, optimizer=optimizer, regime=REGIME)
    with pytest.raises(ConfigurationError, match=words):
        trainer.fit()


def test_a_group_may_have_no_weight_decay() -> None:
    groups = {"rows": {"weight_decay": 0.0}}
    *_, trainer = planned(6, optimizer=lotan.Adam(weight_decay=0.1, groups=groups), regime=REGIME, epochs=1)
    assert len(trainer.fit().history) == 1


# --- other graphs and engines -----------------------------------------------------------------------------------------


def without(found: Drawn, *ids: str, more: tuple[str, ...] = ()) -> lotan.Graph:
    """The graph without some vertices, and with others that have no edges."""
    arrays = found.graph.arrays()
    kept = ~np.isin(arrays.ids, ids)
    there = kept[arrays.src] & kept[arrays.dst]
    vertices = pd.DataFrame({"id": [*arrays.ids[kept], *more]})
    edges = pd.DataFrame({"src": arrays.ids[arrays.src[there]], "dst": arrays.ids[arrays.dst[there]]})
    return lotan.Graph(vertices, edges)


def test_a_saved_model_knows_its_rows_by_id(tmp_path: Any) -> None:
    _, found, trainer = planned(7)
    run = trainer.fit()
    run.save(tmp_path)
    loaded, expected = lotan.load(tmp_path), run.predict().set_index("id")["probability"]
    alike = loaded.predict(without(found)).set_index("id")["probability"]
    assert all(np.array_equal(expected[one], alike[one]) for one in expected.index)
    arrays = found.graph.arrays()
    last = next(one for one in range(VERTICES) if one not in arrays.src)  # no other vertex depends on it
    fewer = loaded.predict(without(found, arrays.ids[last])).set_index("id")["probability"]
    assert all(np.allclose(expected[one], fewer[one], atol=1e-6) for one in fewer.index)
    assert len(fewer) == VERTICES - 1


def test_vertices_without_a_row() -> None:
    _, found, trainer = planned(7)
    model = trainer.fit().model
    other = without(found, more=("w1", "w2", "w3", "w4"))
    with pytest.raises(GraphError, match=r"4 of 54 vertices have no learned row \(such as 'w1', 'w2', 'w3'\).*unseen"):
        model.predict(other)
    with pytest.raises(ConfigurationError, match="unseen is 'zero'"):
        model.predict(other, unseen="zero")
    found_rows = model.predict(other, unseen="mean").set_index("id")["probability"]
    assert np.allclose(found_rows["w1"], found_rows["w4"], atol=1e-6)
    # a vertex without edges whose row is the mean
    weights = {**model.weights, "rows.weight": model.weights["rows.weight"].mean(0, keepdim=True)}
    net = Embedded()
    net.load_state_dict(weights)
    alone = net(None, lotan.nn.EdgeIndex(torch.zeros(2, 0, dtype=torch.int64), num_vertices=1)).softmax(1)
    assert np.allclose(found_rows["w1"], alone.detach().numpy()[0], atol=1e-6)


def test_predict_on_the_command_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _, found, trainer = planned(7)
    trainer.fit().save(tmp_path / "model")
    without(found, more=("w1",)).save(tmp_path / "graph")
    out = tmp_path / "predictions.parquet"
    options = ["predict", "--graph", str(tmp_path / "graph"), "--model-dir", str(tmp_path / "model"), "--out", str(out)]
    assert main(options) != 0
    assert "1 of 51 vertices have no learned row ('w1')" in capsys.readouterr().err
    assert main([*options, "--unseen", "mean"]) == 0
    assert len(pd.read_parquet(out)) == VERTICES + 1


def test_explain_says_where_rows_lie_and_counts_their_memory() -> None:
    *_, trainer = planned(7, optimizer=lotan.Adam(lr=0.01))
    assert f"learned, in this process: rows.weight {VERTICES} rows of {WIDTH} numbers (1.2 kB)" in trainer.explain()
    assert "a step changes all" in trainer.explain()
    *_, batches = planned(7, regime=REGIME)
    assert "a step changes the rows that its batch reads" in " ".join(batches.explain().split())
    plan, known = trainer.job.plan, trainer.job.statistics
    assert learned_bytes(plan, known) == 4 * VERTICES * WIDTH
    narrow = replace(known, vertices=0)
    assert (
        local_bytes(plan, known, Pricing().layout) - local_bytes(plan, narrow, Pricing().layout)
        > 5 * 4 * VERTICES * WIDTH
    )


def test_an_explanation_counts_learned_rows_as_features() -> None:
    """Influences of all vertices together are the output less that with rows of 0."""
    model, found, trainer = planned(7)
    run = trainer.fit()
    explained = run.explain_vertex("v7", output=1, steps=400)
    graph = lotan.nn.EdgeIndex(found.index, num_vertices=VERTICES)
    row = found.graph.arrays().ids.tolist().index("v7")
    value = float(model(found.x, graph)[row, 1])
    with torch.no_grad():
        model.rows.weight.zero_()
    assert explained.value == pytest.approx(value, abs=1e-5)
    assert explained.vertices["influence"].sum() == pytest.approx(
        value - float(model(found.x, graph)[row, 1]), abs=1e-2
    )


def test_training_on_other_vertices_is_refused() -> None:
    model, found, _ = planned(7)
    with pytest.raises(
        GraphError, match=r"1 of 50 vertices have no row \('w'\), and 1 of 50 rows have no vertex \('v0'\)"
    ):
        assert lotan.Trainer(model, without(found, "v0", more=("w",)), progress=False).plan
    numbered = lotan.Graph.from_arrays(src=[0], dst=[1], label=[0, 1], split=[0, 0])
    with pytest.raises(GraphError, match="the ids of the rows are strings, and those of the graph are integers"):
        assert lotan.Trainer(model, numbered, progress=False).plan


def test_the_rows_engine_refuses_learned_rows() -> None:
    found = drawn(7)
    for model in (Embedded(), ByWeight()):
        with pytest.raises(ConfigurationError, match=r"engine rows has no learned rows.*engine='local'"):
            assert lotan.Trainer(model, found.graph, engine="rows", progress=False).plan


def test_a_model_that_reads_features_needs_some() -> None:
    found = drawn(7)
    with pytest.raises(GraphError, match=r"rows hold no numbers.*lotan\.nn\.LearnedFeatures"):
        assert lotan.Trainer(lotan.nn.GCN(4, 4, 2, CLASSES), found.graph, progress=False).plan
    with pytest.raises(ModelError, match=r"or give the graph features, of which it has none"):
        assert lotan.Trainer(Embedded(2), found.graph, progress=False).plan


# --- checkpoints and batches of models --------------------------------------------------------------------------------


@pytest.mark.parametrize("regime", [lotan.FullBatch(), REGIME], ids=["full batch", "mini-batches"])
def test_a_resumed_run_is_the_same_run(tmp_path: Any, regime: Any) -> None:
    options = {"optimizer": lotan.Adam(lr=0.02), "regime": regime, "eval_every": 1}
    whole, _, trainer = planned(8, epochs=4, **options)
    trainer.fit()
    planned(8, epochs=2, checkpoint_dir=tmp_path, **options)[2].fit()
    resumed, _, trainer = planned(8, epochs=4, checkpoint_dir=tmp_path, resume=True, **options)
    trainer.fit()
    for name, one in whole.named_parameters():
        assert torch.equal(resumed.get_parameter(name), one), name


@pytest.mark.parametrize("regime", [lotan.FullBatch(), REGIME], ids=["full batch", "mini-batches"])
def test_models_of_a_batch_become_what_they_are_alone(regime: Any) -> None:
    """Each model has rows of its own; what all compute alike is still shared."""
    found = drawn(9)
    models: list[torch.nn.Module] = []
    for seed in range(2):
        torch.manual_seed(seed)
        models.append(Embedded())
    alone, options = deepcopy(models), {"regime": regime, "progress": False}
    optimizer = lotan.Adam(lr=0.02)
    for seed, model in enumerate(alone):
        lotan.Trainer(model, found.graph, optimizer=optimizer, seed=seed, epochs=3, **options).fit()
    members = [lotan.Member(model, optimizer, seed=seed, epochs=3) for seed, model in enumerate(models)]
    with lotan.ModelBatch(found.graph, members, **options) as batch:
        batch.train()
        batch.runs()  # which load the best weights
    for model, expected in zip(models, alone, strict=True):
        for name, one in expected.named_parameters():
            assert torch.equal(model.get_parameter(name), one), name


class Listed(torch.nn.Module):
    """A table for each layer, in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.ParameterList(torch.nn.Parameter(torch.randn(VERTICES, WIDTH)) for _ in range(2))
        self.conv = pyg.SAGEConv(WIDTH, CLASSES)

    def forward(self, edge_index: Tensor) -> Tensor:
        return self.conv(self.rows[0] + self.rows[1].tanh(), edge_index)


def test_tables_in_a_list_are_learned_rows() -> None:
    found = drawn(7)
    torch.manual_seed(7)
    model = Listed()
    other = deepcopy(model)
    trainer = lotan.Trainer(model, found.graph, epochs=2, eval_every=0, optimizer=lotan.SGD(lr=0.1), progress=False)
    assert set(trainer.job.train.learned) == {"rows.0", "rows.1"}
    trainer.fit()
    steps = torch.optim.SGD(other.parameters(), 0.1)
    for _ in range(2):
        steps.zero_grad()
        functional.cross_entropy(other(found.index)[found.train], found.label[found.train]).backward()
        steps.step()
    assert_alike(model, other)
