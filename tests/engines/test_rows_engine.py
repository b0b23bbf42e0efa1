"""Whole epochs on Spark with a real Router and real workers, against the local engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lotan.engines.base import Outcome, Pass, run
from lotan.engines.choice import ENGINES
from lotan.engines.local.engine import LocalEngine
from lotan.engines.rows.engine import RowsEngine, RowsSettings
from lotan.errors import EngineError
from lotan.graph.graph import Graph
from lotan.hosts.session import Session, SessionSettings
from planner import Options, Planned, compile_plan
from planner.cost.seconds import Pricing
from planner.loss import LossSpec
from tests.engines.drawn import Drawn, draw_graph
from tests.engines.faults import Fault, inject
from tests.engines.models import MODELS, OUT, WIDTH, Model, gcn_forward, gcn_spec
from tests.engines.physical import implied_shuffles
from tests.night import at_night
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

BY_NAME = {model.name: model for model in MODELS}
OPTIONS = {
    "auto": Options(pricing=Pricing(ENGINES["rows"])),
    "general": Options(pricing=Pricing(ENGINES["rows"]), plan="general"),
    "general without RGB": Options(pricing=Pricing(ENGINES["rows"]), plan="general", rgb=False),
    "without RGB": Options(pricing=Pricing(ENGINES["rows"]), rgb=False),
    "pruned": Options(pricing=Pricing(ENGINES["rows"]), disabled=("reuse_evaluation",)),
}


@dataclass
class Job:
    """A model, planned for a random graph."""

    model: Model
    options: Options
    strings: bool = False
    weighted: bool = True
    drawn: Drawn | None = None  # None: a random one
    graph: Graph = field(init=False)

    def __post_init__(self) -> None:
        drawn = self.drawn or draw_graph(width=WIDTH, strings=self.strings, seed=3)
        rng = np.random.default_rng(0)
        vertices = len(drawn.ids)
        self.label = rng.integers(0, OUT, vertices)
        self.split = rng.integers(-1, 3, vertices).astype(np.int8)
        self.split[0] = 0
        self.graph = Graph.from_arrays(
            drawn.features, drawn.ids[drawn.src], drawn.ids[drawn.dst], self.label, self.split,
            drawn.weight if self.weighted else None, drawn.ids,
        )  # fmt: skip
        self.loss = LossSpec("classification", OUT, float((self.split == 0).sum()))
        train, evaluate = self.model.spec(True), self.model.spec(False)
        self.planned: Planned = compile_plan(train, evaluate, self.loss, self.graph.statistics, self.options)
        torch.manual_seed(0)
        self.start = {p.name: torch.randn(p.shape) * 0.5 for p in train.parameters}
        self.parameters = dict(self.start)

    def train(self, engine: RowsEngine | LocalEngine, epoch: int = 0) -> Outcome:
        return run(engine, self.planned.plan, self.planned.plan.train, Pass(epoch, self.parameters, 7))

    def evaluate(self, engine: RowsEngine | LocalEngine) -> Outcome:
        return run(engine, self.planned.plan, self.planned.plan.evaluate, Pass(0, self.parameters, 7))


def dropout_gcn(p: float) -> Model:
    return Model("gcn", lambda training: gcn_spec(training, p), gcn_forward)


def pruned_dropout() -> Job:
    """So few edges that both layers are computed on some vertices alone."""
    job = Job(dropout_gcn(0.5), OPTIONS["auto"], drawn=draw_graph(edges=48, width=WIDTH, seed=3))
    assert {0, 1} <= {step.within for step in job.planned.plan.train}
    return job


def assert_same(ours: Outcome, theirs: Outcome) -> None:
    for counted in ("statistics", "evaluation"):
        found, expected = getattr(ours, counted), getattr(theirs, counted)
        assert (found is None) == (expected is None)
        if found is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert ours.gradients.keys() == theirs.gradients.keys()
    for name, gradient in theirs.gradients.items():
        torch.testing.assert_close(ours.gradients[name].view_as(gradient), gradient, rtol=1e-5, atol=1e-5, msg=name)


def on_local(job: Job) -> LocalEngine:
    engine = LocalEngine()
    engine.load(job.graph, job.planned.plan)
    return engine


def on_rows(job: Job, spark: SparkSession, workers: Session, **settings: object) -> RowsEngine:
    settings = {"partitions": 3, "chunk_rows": 8, "attempts": 3} | settings
    assert workers.link is not None
    engine = RowsEngine(spark, workers.link, workers.endpoint, RowsSettings(**settings))
    engine.load(job.graph, job.planned.plan)
    return engine


GRID = [
    *[(model.name, options) for model in MODELS for options in ("auto", "general without RGB")],
    ("gcn", "general"),
    ("gcn", "without RGB"),
    ("attention", "general"),
    ("attention", "pruned"),
    ("residual_max", "pruned"),
]


@pytest.mark.nightly  # by day, odd graphs alone; `tests/exactness/test_rows.py` has models and plans of all kinds
@pytest.mark.parametrize(("model", "options"), GRID)
def test_an_epoch_equals_the_local_engine(model: str, options: str, spark: SparkSession, workers: Session) -> None:
    job = Job(BY_NAME[model], OPTIONS[options], strings=options == "without RGB", weighted=options != "general")
    with closing(on_rows(job, spark, workers)) as engine:
        oracle = on_local(job)
        assert_same(job.train(engine), job.train(oracle))
        assert_same(job.evaluate(engine), job.evaluate(oracle))
        moved = engine.bytes_moved()
        assert min(moved["messenger_sent"], moved["messenger_received"], moved["shuffle_written"]) > 0


def edgeless(vertices: int, width: int = WIDTH) -> Drawn:
    none = np.zeros(0, dtype=np.int64)
    features = np.random.default_rng(0).normal(size=(vertices, width)).astype(np.float32)
    return Drawn(np.arange(vertices) - 1, none, none, none.astype(np.float32), features)


def three_names() -> Drawn:
    """String ids, a loop, and a vertex that sends to all, itself included."""
    drawn = edgeless(3)
    src, dst = np.array([[0, 0, 0, 2], [0, 1, 2, 2]])
    return replace(drawn, ids=np.array(["", "a b", "é"]), src=src, dst=dst, weight=np.ones(4, dtype=np.float32))


THIN = Model("thin", lambda training: gcn_spec(training, 0.0, (1, 1, OUT)), gcn_forward)
ODD = {
    "no edges": (edgeless(10), BY_NAME["gcn"], "auto"),
    "no edges, general": (edgeless(10), BY_NAME["attention"], "general"),
    "one vertex": (edgeless(1), BY_NAME["residual_max"], "auto"),
    "more partitions than vertices, string ids": (three_names(), BY_NAME["attention"], "general"),
    "columns of width 1": (draw_graph(width=1), THIN, "auto"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ODD)
def test_odd_graphs_equal_the_local_engine(kind: str, spark: SparkSession, workers: Session) -> None:
    drawn, model, options = ODD[kind]
    job = Job(model, OPTIONS[options], drawn=drawn)
    with closing(on_rows(job, spark, workers, partitions=5 if len(drawn.ids) == 3 else 2)) as engine:
        assert_same(job.train(engine), job.train(on_local(job)))
        moved = engine.bytes_moved()
        assert min(moved["messenger_sent"], moved["messenger_received"]) > 0


@pytest.mark.nightly
def test_static_columns_travel_once(spark: SparkSession, workers: Session) -> None:
    job = Job(BY_NAME["gcn"], Options())
    with closing(on_rows(job, spark, workers)) as engine:
        sent = [0]
        for epoch in range(2):
            job.train(engine, epoch)
            sent.append(engine.bytes_moved()["messenger_sent"])
    first, second = np.diff(sent).tolist()
    static = job.graph.arrays().features.nbytes + job.label.nbytes + job.split.nbytes
    assert second <= first - static


@pytest.mark.parametrize(
    ("model", "options"),
    at_night([("residual_max", "auto"), ("attention", "general")], unless=[("attention", "general")]),
)
def test_no_join_of_a_pass_shuffles(
    model: str, options: str, spark: SparkSession, workers: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = []

    def look(rows: DataFrame) -> None:
        looked_at.append(rows)
        assert implied_shuffles(rows) == []
        raise EngineError("seen enough")

    job = Job(BY_NAME[model], OPTIONS[options])
    with closing(on_rows(job, spark, workers)) as engine:
        monkeypatch.setattr("lotan.engines.rows.engine.compute", look)
        with pytest.raises(EngineError, match="seen enough"):
            job.train(engine)
    assert looked_at


@pytest.mark.nightly
def test_the_arrow_form_gives_the_same_epoch(spark: SparkSession, workers: Session) -> None:
    job = Job(dropout_gcn(0.0), Options())
    with closing(on_rows(job, spark, workers, form="arrow")) as engine:
        assert_same(job.train(engine), job.train(on_local(job)))


@pytest.mark.nightly  # by day: test_trainer_rows, test_predictions_are_a_spark_frame_with_the_ids_as_given
def test_predictions_come_back_under_their_ids(spark: SparkSession, workers: Session) -> None:
    job = Job(BY_NAME["gcn"], Options(), strings=True)
    plan = job.planned.plan
    (output,) = plan.predict[-1].outputs

    def predict(engine: RowsEngine | LocalEngine) -> Outcome:
        return run(engine, plan, plan.predict, Pass(0, job.parameters), keep=(output.name,))

    local = on_local(job)
    expected = local.read(predict(local).columns[output.name])
    with closing(on_rows(job, spark, workers)) as engine:
        handle = predict(engine).columns[output.name]
        rows = {row["id"]: row["values"] for row in engine.read(handle).collect()}
        engine.release(handle)
    assert list(rows) != []
    found = np.array([rows[identifier] for identifier in expected["id"]], dtype=np.float32)
    np.testing.assert_allclose(found, np.stack(expected["values"]), rtol=1e-5, atol=1e-5)


@pytest.mark.nightly
def test_a_graph_of_the_users_session_leaves_no_view_and_no_setting(spark: SparkSession, workers: Session) -> None:
    job = Job(BY_NAME["gcn"], Options())
    vertices, edges = job.graph.frames(spark)
    names = F.when(F.col("split") == 0, "train").when(F.col("split") == 1, "val").when(F.col("split") == 2, "test")
    before = {name: spark.conf.get(name) for name in ("spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions")}
    job.graph = Graph(vertices.withColumn("split", names), edges, weight="weight")
    with closing(on_rows(job, spark, workers)) as engine:
        ours = job.train(engine)
    assert_same(ours, job.train(on_local(job)))
    assert {name: spark.conf.get(name) for name in before} == before


def test_a_users_view_is_found_after_a_graph_from_memory_was_loaded(spark: SparkSession, workers: Session) -> None:
    spark.range(3).createOrReplaceTempView("rows_engine_view")
    try:
        with closing(on_rows(Job(BY_NAME["gcn"], Options()), spark, workers)):
            assert SparkSession.active().table("rows_engine_view").count() == 3
    finally:
        spark.catalog.dropTempView("rows_engine_view")


def two_epochs(job: Job, engine: RowsEngine) -> list[bytes]:
    """Weights after two steps of descent, bit for bit."""
    job.parameters = {name: p.clone() for name, p in job.start.items()}
    for epoch in range(2):
        gradients = job.train(engine, epoch).gradients
        job.parameters = {name: p - 0.3 * gradients[name].view_as(p) for name, p in job.parameters.items()}
    return [p.numpy().tobytes() for p in job.parameters.values()]


@pytest.fixture(scope="module")
def dropout_engine(spark: SparkSession, workers: Session) -> Iterator[RowsEngine]:
    with closing(on_rows(pruned_dropout(), spark, workers, chunk_rows=4)) as engine:
        yield engine


@pytest.fixture(scope="module")
def undisturbed(dropout_engine: RowsEngine) -> list[bytes]:
    return two_epochs(pruned_dropout(), dropout_engine)


@pytest.mark.nightly  # with faults: test_a_task_that_fails_or_runs_twice_changes_no_bit
def test_twice_is_the_same_bits(spark: SparkSession, workers: Session, undisturbed: list[bytes]) -> None:
    job = pruned_dropout()
    with closing(on_rows(job, spark, workers, chunk_rows=4)) as engine:
        assert two_epochs(job, engine) == undisturbed


@pytest.mark.nightly
def test_engines_on_one_graph_hold_tables_of_their_own(spark: SparkSession, workers: Session) -> None:
    """Spark keeps one copy of frames with equal plans, and drops it for all who hold it."""
    job, persisted = Job(BY_NAME["gcn"], Options()), spark.sparkContext._jsc.getPersistentRDDs
    before = len(persisted())
    with closing(on_rows(job, spark, workers)):
        held = len(persisted()) - before
        with closing(on_rows(job, spark, workers)):
            assert len(persisted()) == before + 2 * held
        assert len(persisted()) == before + held > before


PLACES = (("train.0", "forward"), ("train.1", "turn"), ("train.0", "backward"))


@pytest.mark.nightly  # by day on blocks
@pytest.mark.chaos
@pytest.mark.parametrize("kind", at_night([("raise",), ("twice",)], unless=[("twice",)]))
def test_a_task_that_fails_or_runs_twice_changes_no_bit(
    kind: str, dropout_engine: RowsEngine, undisturbed: list[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # each fault fails one attempt of the first pass, and a pass has three
    faults = [Fault(kind, stage, mode, tmp_path) for stage, mode in PLACES[: 2 if kind == "raise" else 3]]
    inject(monkeypatch, faults)
    assert two_epochs(pruned_dropout(), dropout_engine) == undisturbed
    assert all(fault.happened for fault in faults)


@pytest.mark.chaos
@pytest.mark.nightly
@pytest.mark.parametrize(("stage", "mode"), PLACES)
def test_killed_workers_change_no_bit(
    stage: str,
    mode: str,
    spark: SparkSession,
    undisturbed: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    job = pruned_dropout()
    with Session(SessionSettings(workers=2)) as session:
        victims = tuple(session.worker_processes.values())
        fault = Fault("kill", stage, mode, tmp_path, victims)
        inject(monkeypatch, [fault])
        with closing(on_rows(job, spark, session, chunk_rows=4)) as engine:
            assert two_epochs(job, engine) == undisturbed
        assert fault.happened
        wait_for(lambda: len(session.worker_processes) == 2)
        assert not set(victims) & set(session.worker_processes.values())


def test_what_a_stage_cannot_do_is_told_in_a_sentence(
    spark: SparkSession, workers: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(BY_NAME["gcn"], Options())
    job.parameters["w0"] = torch.zeros(1, 1)
    with closing(on_rows(job, spark, workers)) as engine:
        with pytest.raises(EngineError) as caught:
            job.train(engine)
        text = str(caught.value)
        assert "stage 'train." in text
        assert "partition" in text
        assert "attempt 1 of" in text
        assert len(text.splitlines()) == 1
