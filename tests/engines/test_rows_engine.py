"""Whole epochs on Spark with a real Router and real workers, against the local engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from pyspark.sql import SparkSession

from lotan.engines.base import Outcome, Pass, run
from lotan.engines.local import LocalEngine
from lotan.engines.rows.engine import RowsEngine, RowsSettings
from lotan.graph import Graph
from lotan.session import Session, SessionSettings
from planner import Options, Planned, compile_plan
from planner.spec import LossSpec
from tests.engines.drawn import draw_graph
from tests.engines.models import MODELS, OUT, WIDTH, Model

pytestmark = pytest.mark.spark

OPTIONS = {
    "auto": Options(),
    "general": Options(plan="general"),
    "general without RGB": Options(plan="general", rgb=False),
    "without RGB": Options(rgb=False),
}


@pytest.fixture(scope="module")
def workers() -> Iterator[Session]:
    with Session(SessionSettings(workers=2)) as session:
        yield session


@dataclass
class Job:
    """A model, planned for a random graph."""

    model: Model
    options: Options
    strings: bool = False
    weighted: bool = True
    graph: Graph = field(init=False)

    def __post_init__(self) -> None:
        drawn = draw_graph(width=WIDTH, strings=self.strings, seed=3)
        rng = np.random.default_rng(0)
        vertices = len(drawn.ids)
        self.label = rng.integers(0, OUT, vertices)
        self.split = rng.integers(-1, 3, vertices).astype(np.int8)
        self.graph = Graph.from_arrays(
            drawn.features, drawn.ids[drawn.src], drawn.ids[drawn.dst], self.label, self.split,
            drawn.weight if self.weighted else None, drawn.ids,
        )  # fmt: skip
        self.loss = LossSpec("classification", OUT, float((self.split == 0).sum()))
        train, evaluate = self.model.spec(True), self.model.spec(False)
        self.planned: Planned = compile_plan(train, evaluate, self.loss, self.graph.statistics, self.options)
        torch.manual_seed(0)
        self.parameters = {p.name: torch.randn(p.shape) * 0.5 for p in train.parameters}

    def train(self, engine: RowsEngine | LocalEngine, epoch: int = 0) -> Outcome:
        return run(engine, self.planned.plan, self.planned.plan.train, Pass(epoch, self.parameters, 7))

    def evaluate(self, engine: RowsEngine | LocalEngine) -> Outcome:
        return run(engine, self.planned.plan, self.planned.plan.evaluate, Pass(0, self.parameters, 7))


def assert_same(ours: Outcome, theirs: Outcome) -> None:
    np.testing.assert_allclose(ours.statistics, theirs.statistics, rtol=1e-5, atol=1e-6)
    assert ours.gradients.keys() == theirs.gradients.keys()
    for name, gradient in theirs.gradients.items():
        torch.testing.assert_close(ours.gradients[name].view_as(gradient), gradient, rtol=1e-5, atol=1e-5, msg=name)


def on_local(job: Job) -> LocalEngine:
    engine = LocalEngine()
    engine.load(job.graph, job.planned.plan)
    return engine


def on_rows(job: Job, spark: SparkSession, workers: Session, **settings: object) -> RowsEngine:
    settings = {"partitions": 3, "chunk_rows": 8} | settings
    assert workers.link is not None
    engine = RowsEngine(spark, workers.link, workers.endpoint, RowsSettings(**settings))
    engine.load(job.graph, job.planned.plan)
    return engine


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("options", OPTIONS)
def test_an_epoch_equals_the_local_engine(model: Model, options: str, spark: SparkSession, workers: Session) -> None:
    job = Job(model, OPTIONS[options], strings=options == "without RGB", weighted=options != "general")
    engine = on_rows(job, spark, workers)
    try:
        oracle = on_local(job)
        assert_same(job.train(engine), job.train(oracle))
        assert_same(job.evaluate(engine), job.evaluate(oracle))
    finally:
        engine.close()
