"""Reductions by groups of vertices, on Spark: as on local, and with the same bits in each run."""

from __future__ import annotations

from contextlib import closing

import pytest

import lotan
from lotan.engines.base import Pass, run
from lotan.engines.blocks.engine import BlocksEngine, BlocksSettings
from lotan.engines.local import LocalEngine
from lotan.engines.rows.engine import RowsEngine, RowsSettings
from lotan.hosts.jar import JAR
from lotan.training.learner import weights_of
from tests.exactness.groups import ATTENTION, BY_GROUP, grouped_graph, model_of
from tests.exactness.test_norms import assert_same_bits
from tests.exactness.test_norms_on_spark import assert_close, planned_for

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar"),
]


WITHOUT = ("OverAll", "SGFormerAttention", "PolynormerAttention", "PerformerAttention")
"""The models that take no groups."""


def others_than(*usual: str) -> list[object]:
    """The other models, for the nightly run."""
    names = (*BY_GROUP, "OverAll", *ATTENTION)
    return [*usual, *(pytest.param(name, marks=pytest.mark.nightly) for name in names if name not in usual)]


def assert_equals_local(name, kind, engine):
    """Compare a training pass that also evaluates with that of the local engine, and with itself run again."""
    model = model_of(name)
    job = lotan.Trainer(
        model, grouped_graph(grouped=name not in WITHOUT, groups=1 if name in ATTENTION else 4), engine="local"
    ).job
    a_pass = Pass(1, weights_of(model), seed=0)
    with closing(engine), closing(LocalEngine(chunk_rows=8)) as local:
        plan = planned_for("local", job).plan
        local.load(job.graph, plan)
        expected = run(local, plan, plan.training(True), a_pass)
        plan = planned_for(kind, job).plan
        engine.load(job.graph, plan)
        outcomes = [run(engine, plan, plan.training(True), a_pass) for _ in range(2)]
    assert_close(outcomes[0], expected)
    assert_same_bits(dict(outcomes[0].gradients), dict(outcomes[1].gradients))


@pytest.mark.parametrize("name", others_than("max", "VirtualNode", "SGFormer"))
def test_blocks_equal_local(spark, workers, name):
    settings = BlocksSettings(partitions=1 + len(name) % 4, chunk_rows=8, shuffled=bool(len(name) % 2))
    assert_equals_local(name, "blocks", BlocksEngine(spark, workers.link, workers.endpoint, settings))


@pytest.mark.parametrize("name", others_than("max"))
def test_rows_equal_local(spark, workers, name):
    settings = RowsSettings(partitions=1 + len(name) % 3, chunk_rows=8)
    assert_equals_local(name, "rows", RowsEngine(spark, workers.link, workers.endpoint, settings))
