"""Link prediction end to end, on the local engine: the steps of PyG and autograd on the same links and negatives."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import lotan
from lotan.batches.examples import batches_of_epoch
from lotan.batches.sampler import Sampler
from lotan.errors import ConfigurationError, GraphError, ModelError
from lotan.graph.row_keys import edge_keys
from lotan.links.decoders import PREFIX, make_decoder
from lotan.links.examples import link_graph
from lotan.links.pairs import FULL_BATCH_LINKS, Negatives
from lotan.stages.randomness import Randomness
from lotan.training.checkpoint import CheckpointError
from tests.links.graphs import WIDTH, columns, graph
from tests.links.test_pairs import by_hand

pytestmark = pytest.mark.thorough

RATE, ROWS = 0.5, 6


def fit(model: torch.nn.Module, given: lotan.Graph, task: Any, **options: Any) -> Any:
    settings = {"progress": False, "optimizer": lotan.SGD(lr=RATE), "epochs": 2, "eval_every": 0, **options}
    return lotan.Trainer(model, given, task=task, **settings).fit()


def encoder(seed: int = 0, kind: Any = pyg.GraphSAGE, layers: int = 2) -> torch.nn.Module:
    torch.manual_seed(seed)
    return kind(WIDTH, 8, layers, ROWS)


def assert_alike(run: Any, theirs: torch.nn.Module, decoder: torch.nn.Module) -> None:
    weights = run.model.weights
    for name, one in [*theirs.named_parameters(), *((f"{PREFIX}{n}", p) for n, p in decoder.named_parameters())]:
        torch.testing.assert_close(weights[name], one.detach(), rtol=1e-4, atol=2e-6, msg=name)


FULL = [(pyg.GraphSAGE, "distmult", "softmax"), (pyg.GCN, "complex", "bce"), (pyg.GAT, "dot", "softmax")]


@pytest.mark.parametrize(("kind", "name", "loss"), FULL)
def test_full_batch_takes_the_steps_of_autograd(kind: Any, name: str, loss: str) -> None:
    given = graph(1)
    task = lotan.LinkPrediction(decoder=name, negatives=15, loss=loss, filtered=True)
    ours = encoder(kind=kind)
    theirs, linked = deepcopy(ours), link_graph(given, task)
    decoder, drawn = make_decoder(task, ROWS, 3, seed=0), Negatives(linked.links, task)
    found = fit(ours, given, task)
    arrays, count = linked.graph.arrays(), len(drawn.training)
    assert count <= FULL_BATCH_LINKS
    x, edges = torch.from_numpy(arrays.features), torch.from_numpy(np.stack([arrays.src, arrays.dst]))
    assert edges.shape[1] == count  # no link of validation or test carries messages
    optimizer = torch.optim.SGD([*theirs.parameters(), *decoder.parameters()], RATE)
    for epoch in (1, 2):
        optimizer.zero_grad()
        mean = by_hand(decoder, theirs(x, edges), drawn.pairs(np.arange(count), epoch, 0), loss)
        mean.backward()
        optimizer.step()
        assert found.history[epoch - 1]["loss"] == pytest.approx(mean.item(), rel=1e-5)
    assert_alike(found, theirs, decoder)


@pytest.mark.parametrize("exclude", [None, False], ids=["without its own links", "with them"])
@pytest.mark.parametrize("undirected", [False, True])
def test_mini_batches_take_the_steps_of_autograd(exclude: bool | None, undirected: bool) -> None:
    """On the sampled edges, which are those of the whole sample but for the batch's own links and their reverses."""
    held = columns(2)
    if undirected:  # no pair in both directions, for the two could be in different splits
        once = held["src"] < held["dst"]
        held = {name: array if name == "features" else array[once] for name, array in held.items()}
    given = lotan.Graph.from_arrays(**held, undirected=undirected)
    task = lotan.LinkPrediction(decoder="distmult", negatives=15, exclude_targets=exclude, seed=4)
    regime = lotan.MiniBatch(32, (2, 3), seed=9)
    ours = encoder()
    theirs, linked = deepcopy(ours), link_graph(given, task)
    decoder, drawn = make_decoder(task, ROWS, 3, seed=0), Negatives(linked.links, task)
    found = fit(ours, given, task, regime=regime, epochs=1)
    arrays, training = linked.graph.arrays(), drawn.training
    keys = edge_keys(arrays.keys[training.src], arrays.keys[training.dst], training.numbers)
    sampler, optimizer = Sampler(arrays), torch.optim.SGD([*theirs.parameters(), *decoder.parameters()], RATE)
    for number, chosen in enumerate(batches_of_epoch(np.arange(len(training)), keys, 32, Randomness(9, 1))):
        pairs = drawn.pairs(chosen, 1, number)
        ends = {(int(training.src[row]), int(training.dst[row])) for row in chosen}
        own = [e for e, pair in enumerate(zip(arrays.src, arrays.dst, strict=True))
               if pair in ends or (undirected and pair[::-1] in ends)]  # fmt: skip
        without = np.array(own, dtype=np.int64) if exclude is None else None
        sample = sampler.sample(pairs.ends, (2, 3), Randomness(9, 1, batch=number), without)
        if exclude is None:
            assert not set(own).intersection(sample.edges.tolist())
        edges = torch.from_numpy(np.stack([sample.src, sample.dst]))
        optimizer.zero_grad()
        rows = theirs(torch.from_numpy(arrays.features[sample.rows]), edges)[: sample.counts[0]]
        by_hand(decoder, rows, pairs.among(pairs.ends), "softmax").backward()
        optimizer.step()
    assert_alike(found, theirs, decoder)


def test_sums_that_are_computed_once_do_not_show_the_links_of_a_batch() -> None:
    """With "all" in the first layer its sum would be of all edges, so it is not hoisted."""
    given, regime = graph(3), lotan.MiniBatch(16, ("all",))
    hidden, shown = (
        lotan.Trainer(
            encoder(kind=pyg.GCN, layers=1),
            given,
            regime=regime,
            task=lotan.LinkPrediction(negatives=10, exclude_targets=one),
        ).job
        for one in (None, False)
    )
    assert hidden.batch.plan.hoisted == ()
    assert shown.batch.plan.hoisted != ()


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "Adam"])
def test_learned_rows_alone_take_the_steps_of_sparse_optimizers(name: str) -> None:
    """DistMult as it is published: rows of vertices and of relations, against torch's sparse embeddings."""
    held = {key: array for key, array in columns(9).items() if key != "features"}
    given = lotan.Graph.from_arrays(None, ids=np.arange(40), **held)
    task, regime = lotan.LinkPrediction(decoder="distmult", negatives=6), lotan.MiniBatch(8, (), seed=2)
    model = lotan.nn.LearnedRows(ROWS)
    trainer = lotan.Trainer(
        model, given, task=task, regime=regime, epochs=2, progress=False, eval_every=0,
        optimizer=getattr(lotan, name)(lr=0.1, **({} if name == "SGD" else {"weight_decay": 0.0})),
    )  # fmt: skip
    linked = trainer.job.linked
    rows = torch.nn.Embedding.from_pretrained(model.rows.weight.detach().clone(), freeze=False, sparse=True)
    decoder, drawn = make_decoder(task, ROWS, 3, seed=0), Negatives(linked.links, task)
    run = trainer.fit()
    of_rows = {"SGD": torch.optim.SGD, "Adagrad": torch.optim.Adagrad, "Adam": torch.optim.SparseAdam}[name]
    optimizers = of_rows(rows.parameters(), lr=0.1), getattr(torch.optim, name)(decoder.parameters(), lr=0.1)
    training, keys = drawn.training, linked.graph.arrays().keys
    order = edge_keys(keys[training.src], keys[training.dst], training.numbers)
    for epoch in (1, 2):
        batches = batches_of_epoch(np.arange(len(training)), order, 8, Randomness(2, epoch))
        for number, chosen in enumerate(batches):
            pairs = drawn.pairs(chosen, epoch, number)
            for one in optimizers:
                one.zero_grad()
            by_hand(decoder, rows(torch.from_numpy(pairs.ends)), pairs.among(pairs.ends), "softmax").backward()
            for one in optimizers:
                one.step()
    torch.testing.assert_close(run.model.weights["rows.weight"], rows.weight.detach(), rtol=1e-3, atol=2e-5)
    torch.testing.assert_close(run.model.weights[f"{PREFIX}relation"], decoder.relation.detach(), rtol=1e-3, atol=2e-5)


class Mixed(torch.nn.Module):
    """A decoder of a user's own."""

    def __init__(self, rows: int = 3) -> None:
        super().__init__()
        self.relation = torch.nn.Parameter(torch.ones(rows, ROWS))

    def forward(self, src, relation, dst):
        assert self.training == torch.is_grad_enabled()  # ranks and predictions are those of evaluation
        return (src * self.relation[relation]).tanh().mul(dst).sum(1)


@pytest.mark.parametrize("regime", [lotan.FullBatch(), lotan.MiniBatch(32, (2, 3))], ids=["full", "mini"])
def test_two_runs_are_bit_identical_and_a_resumed_one_too(regime: Any, tmp_path) -> None:
    given = graph(4)

    def trained(epochs: int, decoder: Any = "transe", **options: Any) -> Any:
        torch.manual_seed(0)
        task = lotan.LinkPrediction(decoder=decoder, negatives=10)
        model = lotan.nn.GraphSAGE(WIDTH, 8, 2, ROWS, dropout=0.5)
        settings = {"eval_every": 1, "optimizer": lotan.Adam(lr=0.01), "regime": regime}
        return fit(model, given, task, epochs=epochs, **settings, **options)

    def figures(run: Any) -> list[dict[str, Any]]:
        return [{key: value for key, value in one.items() if not key.endswith("_seconds")} for one in run.history]

    whole, again = trained(4), trained(4)
    trained(2, checkpoint_dir=tmp_path)
    resumed = trained(4, checkpoint_dir=tmp_path, resume=True)
    assert figures(whole) == figures(again)
    assert figures(whole)[2:] == figures(resumed)[2:]
    assert whole.metrics == resumed.metrics
    for name, tensor in whole.model.weights.items():
        assert torch.equal(tensor, again.model.weights[name])
        assert torch.equal(tensor, resumed.model.weights[name])
    with pytest.raises(CheckpointError, match="links"):
        trained(4, decoder="distmult", checkpoint_dir=tmp_path, resume=True)


def test_patience_follows_the_mean_reciprocal_rank() -> None:
    found = fit(
        encoder(),
        graph(5),
        lotan.LinkPrediction(negatives=10),
        optimizer=lotan.SGD(lr=0.0),
        eval_every=1,
        patience=3,
        epochs=20,
    )
    assert len(found.history) == 4
    assert found.best_epoch == 1
    assert set(found.metrics) == {"val", "test"}
    json.dumps(found.report)
    assert found.report["task"] == "link"


def test_scores_ranks_and_saved_models(tmp_path) -> None:
    """Ids are texts in another order than the table's, and rows are those of the model in evaluation on training links."""
    held = columns(6)
    ids = np.array([f"v{(7 * number) % 40:02}" for number in range(40)], dtype=object)
    named = held | {"src": ids[held["src"]], "dst": ids[held["dst"]]}
    given = lotan.Graph.from_arrays(**named, ids=ids)
    task = lotan.LinkPrediction(decoder="distmult", negatives=10)
    model = encoder()
    run = fit(model, given, task)
    linked = link_graph(given, task)
    arrays = linked.graph.arrays()
    with torch.no_grad():
        rows = model(torch.from_numpy(arrays.features), torch.from_numpy(np.stack([arrays.src, arrays.dst])))
    weight = run.model.weights["link_decoder.relation"]
    place = {text: row for row, text in enumerate(arrays.ids.tolist())}
    pairs = {"src": ["v03", "v10"], "dst": ["v21", "v09"], "relation": ["b", "a"]}
    want = [float((rows[place["v03"]] * weight[1] * rows[place["v21"]]).sum()),
            float((rows[place["v10"]] * weight[0] * rows[place["v09"]]).sum())]  # fmt: skip
    found = run.predict_links(pairs)
    assert found.columns.tolist() == ["src", "dst", "relation", "score"]
    np.testing.assert_allclose(found["score"], want, rtol=1e-4, atol=1e-6)
    best = run.rank({"src": ["v03"], "relation": ["b"]}, k=40)
    scores = (rows @ (rows[place["v03"]] * weight[1])).numpy()
    np.testing.assert_allclose(best["score"], np.sort(scores)[::-1], rtol=1e-4, atol=1e-5)
    assert best["rank"].tolist() == list(range(1, 41))
    src, dst, relation = named["src"][0], named["dst"][0], named["relation"][0]
    open_ones = run.rank({"src": [src], "relation": [relation]}, k=40, exclude_known=True)
    assert dst not in open_ones["dst"].tolist()
    assert len(open_ones) < 40
    run.save(tmp_path / "model")
    loaded = lotan.load(tmp_path / "model")
    assert loaded.predict_links(given, pairs).equals(found)
    for bad, error in (
        ({**pairs, "src": ["v03", "w1"]}, "1 ids are no vertices of the graph .*'w1'"),
        ({**pairs, "relation": ["b", "z"]}, "1 rows name relations that were not there in training .*'z'"),
        ({**pairs, "src": [3, 4]}, "holds int64, and the ids of the graph are texts"),
        ({"src": ["v03"], "dst": ["v01"]}, "there is no column 'relation'"),
        ({**pairs, "dst": ["v21", None]}, "pairs.dst: 1 rows are null"),
        ([("v03", "v21", "b")], "Pairs are a list, which is no table"),
    ):
        with pytest.raises(GraphError, match=error):
            loaded.predict_links(given, bad)
    with pytest.raises(ModelError, match="use predict_links"):
        loaded.predict(given)
    assert len(run.rank({"src": [], "relation": []})) == len(run.predict_links({name: [] for name in pairs})) == 0
    query = {"src": ["v03"], "relation": ["b"]}
    others, bare = ({**named, "relation": one} for one in (np.full(240, "z"), None))
    unknown = lotan.Graph.from_arrays(**others, ids=ids)
    assert len(loaded.rank(unknown, query, k=40, exclude_known=True)) == 40
    with pytest.raises(GraphError, match=r"edges.relation: there is no such column, .*leave exclude_known out"):
        loaded.rank(lotan.Graph.from_arrays(**bare, ids=ids), query, exclude_known=True)


def test_a_decoder_of_ones_own_trains_predicts_and_is_not_saved(tmp_path) -> None:
    own = Mixed()
    run = fit(encoder(), graph(7), lotan.LinkPrediction(decoder=own, negatives=10), regime=lotan.MiniBatch(64, (2, 2)))
    assert not torch.equal(own.relation, torch.ones(3, ROWS))
    assert len(run.predict_links({"src": [0], "dst": [1], "relation": ["a"]})) == 1
    with pytest.raises(ModelError, match="Mixed is a module of your own, which is code"):
        run.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


class TwoEnds(torch.nn.Module):
    """A decoder that takes no relations."""

    def forward(self, src, dst):
        return src


class CutOff(torch.nn.Module):
    def forward(self, src, relation, dst):
        return (src * dst).sum(1).detach()


@pytest.mark.parametrize(
    ("own", "error"),
    [
        (CutOff(), "CutOff returned scores of torch.float32 without a gradient"),
        (
            TwoEnds(),
            r"TwoEnds fails on two links: TypeError: .*numbers of relations below 3.* returns scores \[links\]",
        ),
        (torch.nn.Bilinear(2, 2, 1), "Bilinear fails on two links"),
        (Mixed(rows=2), "Mixed fails on two links: IndexError"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_decoder_of_ones_own_that_fails_is_refused_before_the_first_batch(own: Any, error: str) -> None:
    with pytest.raises(ModelError, match=error):
        lotan.Trainer(encoder(), graph(7), task=lotan.LinkPrediction(decoder=own, negatives=10)).job  # noqa: B018
    assert own.training


def test_fractions_split_by_hash_and_predictions_use_the_same_messages() -> None:
    held = {name: array for name, array in columns(8, relations=0).items() if name != "edge_split"}
    given, task = lotan.Graph.from_arrays(**held), lotan.LinkPrediction(negatives=10, fractions=(0.2, 0.3), seed=1)
    links = link_graph(given, task).links
    shares = [len(links.of(split)) / len(links) for split in ("train", "val", "test")]
    np.testing.assert_allclose(shares, (0.5, 0.2, 0.3), atol=0.1)
    run = fit(encoder(), given, task)
    assert "auc" in run.metrics["val"]
    train = given.linked_columns()[1].src[links.split == 0], given.linked_columns()[1].dst[links.split == 0]
    pairs = {"src": [0, 5], "dst": [1, 9]}
    plain = run.model.predict_links(
        lotan.Graph.from_arrays(held["features"], *train, edge_split=[0] * len(train[0])), pairs
    )
    assert run.predict_links(pairs)["score"].tolist() == pytest.approx(plain["score"].tolist(), rel=1e-5)


def bad(**changes: Any) -> lotan.Graph:
    return lotan.Graph.from_arrays(
        **{name: value for name, value in {**columns(0), **changes}.items() if value is not None}
    )


BAD_GRAPHS = {
    "no splits": (bad(edge_split=None), "edges.split: there is no such column"),
    "none of training": (bad(edge_split=np.ones(240)), "no link is of split 'train'"),
    "a link twice": (
        bad(src=np.r_[columns(0)["src"][:-1], 3, 3], dst=np.r_[columns(0)["dst"][:-1], 3, 3],
            relation=np.r_[columns(0)["relation"][:-1], ["a", "a"]], edge_split=np.r_[columns(0)["edge_split"][:-1], 0, 2]),
        "1 link in two splits .for example 3 -> 3, relation 'a': 'train' and 'test'",
    ),
    "unknown ends": (bad(src=np.r_[columns(0)["src"][:-1], 99]), "99"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "error"), BAD_GRAPHS.values(), ids=BAD_GRAPHS)
def test_bad_links_are_refused_before_the_first_batch(given: lotan.Graph, error: str) -> None:
    with pytest.raises(GraphError, match=error):
        fit(encoder(), given, lotan.LinkPrediction())


def test_the_reverse_of_a_link_is_the_same_link_where_edges_are_undirected() -> None:
    given = lotan.Graph.from_arrays(np.zeros((3, 2)), [0, 1, 1], [1, 2, 0], edge_split=[0, 0, 2], undirected=True)
    with pytest.raises(GraphError, match="1 link in two splits"):
        link_graph(given, lotan.LinkPrediction())


def test_relations_are_integers_or_texts() -> None:
    with pytest.raises(GraphError, match="relation: an array of float64"):
        bad(relation=np.arange(240) / 2)
    import pandas as pd

    vertices = pd.DataFrame({"id": [1, 2], "features": [[0.0], [1.0]]})
    edges = pd.DataFrame({"src": [1], "dst": [2], "split": ["train"], "relation": [0.5]})
    with pytest.raises(GraphError, match=r"edges.relation: is of type double, expected integers or strings"):
        link_graph(lotan.Graph(vertices, edges), lotan.LinkPrediction())
    with pytest.raises(GraphError, match=r"edges.split: .*unknown split .*dev"):
        link_graph(lotan.Graph(vertices, edges.assign(relation="r", split="dev")), lotan.LinkPrediction())
    read = link_graph(lotan.Graph(vertices, edges.assign(relation="r", split="Training")), lotan.LinkPrediction())
    assert read.links.names == ("r",)


SETTINGS = {
    "engine": ({"engine": "rows"}, "on the engines 'local' and 'blocks', but engine is 'rows'"),
    "loss": ({"loss": "mse"}, r"give lotan.LinkPrediction\(loss=...\)"),
    "excluded": ({"task": lotan.LinkPrediction(exclude_targets=True)}, "exclude_targets is True, but in full batch"),
    "class": ({"task": lotan.LinkPrediction}, r"call it: lotan.LinkPrediction\(\)"),
    "own decoder": (
        {"task": lotan.LinkPrediction(decoder=torch.nn.Bilinear(2, 2, 1)), "log_dir": "runs"},
        "which is code and is not saved",
    ),
    "negatives": ({"task": lotan.LinkPrediction(negatives=41)}, "negatives=41, but the graph has 40 vertices"),
    "monitor": ({"monitor": "accuracy"}, "link has mrr, hits@1"),
    "auc": ({"monitor": "auc"}, "monitor is 'auc', which links with relations do not have"),
    "fanouts": ({"regime": lotan.MiniBatch(8, ())}, r"the model sums over neighbours 2 times in a row; .*fanouts=\(10, 10\)"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "error"), SETTINGS.values(), ids=SETTINGS)
def test_settings_that_do_not_fit_are_refused(options: dict[str, Any], error: str) -> None:
    given = {"task": lotan.LinkPrediction(negatives=10), **options}
    with pytest.raises(ConfigurationError, match=error):
        lotan.Trainer(encoder(), graph(0), **given).job  # noqa: B018


@pytest.mark.parametrize("asked", ["analyze", "alternatives"])
def test_passes_without_pairs_are_not_measured(asked: str) -> None:
    trainer = lotan.Trainer(encoder(), graph(0), task=lotan.LinkPrediction(negatives=10))
    assert "ScorePairs(output) -> loss, d_output" in trainer.explain()
    with pytest.raises(ConfigurationError, match=f"{asked} measures or compares"):
        trainer.explain(**{asked: True})


WRONG = {"decoder": "rescal", "negatives": 0, "loss": "hinge", "negative_sampling": "all", "filtered": "no",
         "fractions": (0.5, 0.5), "seed": -1}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_arguments_of_the_task_are_checked(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"LinkPrediction got {name}="):
        lotan.LinkPrediction(**{name: WRONG[name]})
