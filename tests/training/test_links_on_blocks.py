"""Links in mini-batches on blocks: the steps, samples and ranks of the local engine, whatever goes wrong in an epoch."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch_geometric.nn as pyg
from pyspark.sql import SparkSession

import lotan
from lotan.batches import on_spark
from lotan.errors import ModelError
from lotan.graph import frames
from lotan.hosts.jar import JAR
from lotan.links import memory, pairs
from lotan.results.run import Run
from tests.links.graphs import WIDTH, columns
from tests.training.test_mini_batches_on_blocks import FaultyTask, in_spark, victims
from tests.training.test_mini_batches_on_blocks import tables as of_labels

needs_spark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar"),
]
ROWS = 6
TASK = lotan.LinkPrediction(decoder="distmult", negatives=15, filtered=True, seed=4)
REGIME = lotan.MiniBatch(32, (2, 3), seed=9)


class Relational(torch.nn.Module):
    """RGCN as PyG has it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = pyg.RGCNConv(WIDTH, 8, 3)
        self.second = pyg.RGCNConv(8, ROWS, 3, num_bases=2)

    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        return self.second(self.first(x, edge_index, edge_type).relu(), edge_index, edge_type)


class Embedded(Relational):
    """RGCN over learned rows, with dropout before it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.dropout = lotan.nn.LearnedFeatures(WIDTH), torch.nn.Dropout(0.25)

    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        return super().forward(self.dropout(self.rows.weight), edge_index, edge_type)


class Product(torch.nn.Module):
    """A decoder as a user writes it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.both = torch.nn.Linear(2 * ROWS, 1)

    def forward(self, src: Any, relation: Any, dst: Any) -> Any:
        return self.both(torch.cat([src * dst, src], dim=1)).view(-1)


class Classes(torch.nn.Module):
    """Classes of vertices, by their learned rows and those of their neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.encoder = lotan.nn.LearnedFeatures(4), lotan.nn.GraphSAGE(4, 8, 2, 3, dropout=0.5)

    def forward(self, x: Any, graph: Any) -> Any:
        return self.encoder(self.rows(graph), graph)


def tables(texts: bool = False, relations: int = 3, once: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Vertices in no order, and links. With `once`, no two vertices have links in both directions."""
    held = columns(2, relations=relations)
    if once:
        kept = held["src"] < held["dst"]
        held = {name: array if name == "features" else array[kept] for name, array in held.items()}
    count = len(held["features"])
    ids: Any = np.array([f"v{number}" for number in range(count)]) if texts else np.arange(count) * 3 - 7
    vertices = pd.DataFrame({"id": ids, "features": list(held["features"])})
    splits = np.array(["train", "val", "Test"])[held["edge_split"]]
    edges = pd.DataFrame({"src": ids[held["src"]], "dst": ids[held["dst"]], "split": splits})
    if relations:
        edges["relation"] = held["relation"]
    return vertices.sample(frac=1, random_state=0), edges


def fit(graph: lotan.Graph, kind: Callable[[], Any] = Relational, engine: str = "blocks", **options: Any) -> Run:
    torch.manual_seed(0)
    settings = {"task": TASK, "regime": REGIME, "epochs": 2, "eval_every": 2, "progress": False}
    settings |= {"optimizer": lotan.Adam(lr=0.01), "engine": engine}
    settings |= {"workers": 2, "partitions": 3} if engine == "blocks" else {}
    return lotan.Trainer(kind(), graph, **settings | options).fit()


def assert_equal_local(run: Run, local: Run, ranks: bool = True) -> None:
    assert run.report["engine"] == "blocks"
    assert [entry["loss"] for entry in run.history] == pytest.approx([one["loss"] for one in local.history], rel=1e-5)
    for name, weights in run.model.weights.items():
        torch.testing.assert_close(weights, local.model.weights[name], rtol=1e-5, atol=1e-6, msg=name)
    assert run.metrics.keys() == local.metrics.keys() == {"val", "test"}
    for split, figures in local.metrics.items() if ranks else ():
        assert run.metrics[split] == pytest.approx(figures, rel=1e-6), split
    for size in ("batches", "vertices", "edges") if "mini_batches" in local.report else ():  # the same samples
        assert run.report["mini_batches"][size] == local.report["mini_batches"][size]


def refuse_collection(*tables: Any) -> None:
    raise AssertionError("the tables of the graph were collected")


class TestOnSpark:
    pytestmark = needs_spark

    def test_rgcn_and_distmult_equal_local(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        """Texts as ids, relations, links that are left out of their own batch, and ranks among chunks of 9 vertices."""
        given = tables(texts=True)
        local = fit(lotan.Graph(*given), engine="local")
        monkeypatch.setattr(memory, "RANKED_NUMBERS", 9 * ROWS)
        monkeypatch.setattr(frames, "collect", refuse_collection)
        run = fit(in_spark(spark, given))
        assert_equal_local(run, local)
        assert all(run.report["bytes"][key] > 0 for key in ("messenger_sent", "messenger_received", "shuffle_written"))

    @pytest.mark.nightly  # by day, of vertices with labels
    def test_statistics_of_a_batch_equal_local(self, spark: SparkSession) -> None:
        def encoder() -> Any:
            return pyg.GraphSAGE(WIDTH, 8, 2, ROWS, norm="batch_norm")

        given = tables()
        local = fit(lotan.Graph(*given), encoder, engine="local")
        assert_equal_local(fit(in_spark(spark, given), encoder), local)

    @pytest.mark.nightly  # by day in a full batch
    def test_learned_rows_under_rgcn_equal_local(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        vertices, edges = tables(texts=True)
        given = vertices[["id"]], edges
        local = fit(lotan.Graph(*given), Embedded, "local")
        monkeypatch.setattr(memory, "RANKED_NUMBERS", 9 * ROWS)
        monkeypatch.setattr(frames, "collect", refuse_collection)
        run = fit(in_spark(spark, given), Embedded)
        assert_equal_local(run, local)
        assert all(run.report["bytes"][key] > 0 for key in ("messenger_sent", "messenger_received", "shuffle_written"))
        assert run.model.ids[""].tolist() == sorted(vertices["id"])
        pairs = {name: edges[name].head(9).to_numpy() for name in ("src", "dst", "relation")}
        found, wanted = run.predict_links(pairs), local.predict_links(pairs)
        np.testing.assert_allclose(found["score"], wanted["score"], rtol=1e-4, atol=1e-6)
        asked = {name: pairs[name] for name in ("src", "relation")}
        ranked = [one.rank(asked, k=3, exclude_known=True) for one in (run, local)]
        assert ranked[0]["dst"].tolist() == ranked[1]["dst"].tolist()

    @pytest.mark.parametrize(
        ("kind", "task", "given", "names"),
        [
            (Embedded, {"decoder": "distmult", "filtered": True}, {"texts": True}, {}),
            pytest.param(
                partial(pyg.GraphSAGE, WIDTH, 8, 2, ROWS),
                {"decoder": Product(), "loss": "bce"},
                {"relations": 0, "once": True},
                {"undirected": True},
                marks=pytest.mark.nightly,
            ),
            pytest.param(
                partial(lotan.nn.LearnedRows, ROWS),
                {"decoder": "complex", "negatives": "all"},
                {},
                {},
                marks=pytest.mark.nightly,
            ),
        ],
        ids=["learned rows under RGCN", "a decoder of one's own", "no encoder"],
    )
    def test_a_full_batch_equals_local(
        self,
        spark: SparkSession,
        monkeypatch: pytest.MonkeyPatch,
        kind: Callable[[], Any],
        task: dict[str, Any],
        given: dict[str, Any],
        names: dict[str, Any],
    ) -> None:
        """This process scores the links, in parts and with negatives of their own."""
        both, of_task = tables(**given), {"negatives": 15, "seed": 4, **task}
        monkeypatch.setattr(pairs, "FULL_BATCH_LINKS", 60)
        runs = [
            fit(
                graph,
                kind,
                engine,
                task=lotan.LinkPrediction(**deepcopy(of_task)),
                regime=lotan.FullBatch(),
                optimizer=lotan.SGD(lr=0.1),
            )
            for engine, graph in (("blocks", in_spark(spark, both, **names)), ("local", lotan.Graph(*both, **names)))
        ]
        assert_equal_local(*runs)

    @pytest.mark.nightly
    def test_rows_without_an_encoder_equal_local(self, spark: SparkSession) -> None:
        """With Adagrad, whose state is of rows too. Here the graph is in this process, which sends it to Spark."""
        given, regime = tables(), lotan.MiniBatch(32, (), seed=9)
        of_rows = partial(lotan.nn.LearnedRows, ROWS)
        runs = [
            fit(graph, of_rows, engine, regime=regime, optimizer=lotan.Adagrad(lr=0.1))
            for engine, graph in (("blocks", lotan.Graph(*given)), ("local", lotan.Graph(*given)))
        ]
        assert_equal_local(*runs)

    @pytest.mark.nightly
    @pytest.mark.parametrize(
        ("kind", "task", "given", "names"),
        [
            (pyg.GraphSAGE, {"decoder": "dot", "loss": "bce"}, {"relations": 0, "once": True}, {"undirected": True}),
            (pyg.GCN, {"decoder": "complex", "negative_sampling": "degree"}, {"texts": True}, {}),
            (pyg.GAT, {"decoder": "transe", "negatives": "all", "filtered": True}, {}, {}),
            (pyg.GraphSAGE, {"decoder": "distmult", "exclude_targets": False}, {}, {}),
            (pyg.GraphSAGE, {"decoder": Product(), "filtered": True}, {}, {}),
            (pyg.GraphSAGE, {"decoder": "dot", "fractions": (0.2, 0.2)}, {"relations": 0}, {}),
        ],
        ids=["undirected", "degree", "all negatives", "own links stay", "a decoder of one's own", "fractions"],
    )
    def test_decoders_and_draws_equal_local(
        self, spark: SparkSession, kind: Any, task: dict[str, Any], given: dict[str, Any], names: dict[str, Any]
    ) -> None:
        both = tables(**given)
        if "fractions" in task:
            both = both[0], both[1].drop(columns="split")
        runs = []
        for engine, graph in (("blocks", in_spark(spark, both, **names)), ("local", lotan.Graph(*both, **names))):
            of_task = lotan.LinkPrediction(**{"negatives": 15, "seed": 4, **deepcopy(task)})
            # Adam would turn the rounding of a gradient that is nearly 0 into a whole step, and TransE has such gradients
            rate = lotan.SGD(lr=0.1)
            runs.append(fit(graph, partial(kind, WIDTH, 8, 2, ROWS), engine, task=of_task, optimizer=rate))
        assert_equal_local(*runs, ranks=task["decoder"] != "transe")  # its scores tie, but for rounding

    @pytest.mark.nightly
    def test_classes_over_learned_rows_equal_local(self, spark: SparkSession) -> None:
        """Predictions compute their rows on blocks too."""
        vertices, edges = of_labels(weighted=False)
        given = vertices.drop(columns="features"), edges
        regime = lotan.MiniBatch(7, (3, 2))
        runs = [
            fit(graph, Classes, engine, task=None, regime=regime)
            for engine, graph in (("blocks", in_spark(spark, given)), ("local", lotan.Graph(*given)))
        ]
        run, local = runs
        assert run.report["engine"] == "blocks"
        for name, weights in run.model.weights.items():
            torch.testing.assert_close(weights, local.model.weights[name], rtol=1e-5, atol=1e-6, msg=name)
        predicted = run.predict()
        found, wanted = (one.set_index("id") for one in (predicted.toPandas(), local.predict()))
        predicted.unpersist()
        assert found["prediction"].equals(wanted["prediction"].reindex(found.index))

    @pytest.mark.nightly
    def test_members_of_a_grid_with_learned_rows_are_what_they_are_alone(self, spark: SparkSession) -> None:
        vertices, edges = of_labels(weighted=False)
        graph, regime = in_spark(spark, (vertices.drop(columns="features"), edges)), lotan.MiniBatch(7, (3, 2))

        def member(seed: int) -> lotan.Member:
            torch.manual_seed(0)
            return lotan.Member(Classes(), lotan.Adam(lr=0.01), seed=seed, epochs=2)

        options = {"engine": "blocks", "workers": 2, "partitions": 3, "eval_every": 2, "progress": False}
        with lotan.ModelBatch(graph, [member(0), member(1)], regime=regime, **options) as batch:
            batch.train()
            runs = batch.runs()
        for seed, run in runs.items():
            alone = fit(graph, Classes, task=None, regime=regime, seed=seed)
            for name, weights in run.model.weights.items():
                torch.testing.assert_close(weights, alone.model.weights[name], rtol=1e-5, atol=1e-6, msg=name)

    @pytest.mark.nightly
    @pytest.mark.parametrize("regime", [lotan.FullBatch(), REGIME], ids=["full batch", "mini-batches"])
    def test_models_of_a_grid_are_what_they_are_alone(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, regime: Any
    ) -> None:
        """One after the other, on a graph that is loaded once; one that diverges ends alone."""
        monkeypatch.setattr(frames, "collect", refuse_collection)
        graph = in_spark(spark, tables(texts=True))

        def member(**task: Any) -> lotan.Member:
            torch.manual_seed(0)
            return lotan.Member(Embedded(), lotan.Adam(lr=0.01), epochs=2, task=lotan.LinkPrediction(**task))

        tasks = [{"decoder": "distmult", "negatives": 15, "seed": 4}, {"decoder": "complex", "negatives": 9}]
        members = [member(**task) for task in tasks]
        wild = lotan.Member(Relational(), lotan.SGD(lr=1e38), epochs=2, task=TASK)
        options = {"engine": "blocks", "workers": 2, "partitions": 3, "eval_every": 1, "progress": False}
        with lotan.ModelBatch(graph, [*members, wild], regime=regime, **options) as batch:
            batch.train()
            assert [state.state for state in batch.states] == ["done", "done", "diverged"]
            assert batch.batches == [[0], [1], [2]]
            assert "model 1" in batch.explain()
            runs = [batch.run_of(number) for number in range(2)]
        for run, task in zip(runs, tasks, strict=True):
            alone = fit(graph, Embedded, task=lotan.LinkPrediction(**task), regime=regime, eval_every=1)
            assert alone.metrics == run.metrics
            for name, weights in run.model.weights.items():
                assert torch.equal(weights, alone.model.weights[name]), name

    @pytest.mark.nightly
    @pytest.mark.chaos
    def test_a_worker_that_is_killed_changes_no_bit(
        self, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        graph = in_spark(spark, tables())
        straight = fit(graph, Embedded)
        steps = straight.report["mini_batches"]["batches"] // 2
        given = {"marks": str(tmp_path), "kind": "worker", "batch": steps + 2, **victims()}
        monkeypatch.setattr(on_spark, "SendTask", partial(FaultyTask, **given))
        disturbed = fit(graph, Embedded)
        assert (tmp_path / "worker").exists()
        assert disturbed.metrics == straight.metrics
        for name, weights in disturbed.model.weights.items():
            assert torch.equal(weights, straight.model.weights[name]), name

    @pytest.mark.nightly
    def test_a_resumed_run_equals_the_uninterrupted_one(self, spark: SparkSession, tmp_path: Path) -> None:
        graph = in_spark(spark, tables())
        whole = fit(graph, Embedded, epochs=2, eval_every=1)
        fit(graph, Embedded, epochs=1, eval_every=1, checkpoint_dir=tmp_path)
        resumed = fit(graph, Embedded, epochs=2, eval_every=1, checkpoint_dir=tmp_path, resume=True)
        assert resumed.metrics == whole.metrics
        for name, weights in resumed.model.weights.items():
            assert torch.equal(weights, whole.model.weights[name]), name


class Dropping(Product):
    def forward(self, src: Any, relation: Any, dst: Any) -> Any:
        return super().forward(torch.nn.functional.dropout(src, 0.5), relation, dst)


def test_what_workers_cannot_do_is_refused_before_work_starts() -> None:
    task, given = lotan.LinkPrediction(Dropping(), negatives=5), lotan.Graph(*tables())
    trainer = lotan.Trainer(Relational(), given, task=task, engine="blocks", regime=REGIME)
    with pytest.raises(ModelError, match="the decoder Dropping cannot be written down"):
        assert trainer.plan
