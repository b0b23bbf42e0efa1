"""Reductions by groups of vertices, on Spark: as on local, and with the same bits in each run."""

from __future__ import annotations

import pytest

from lotan.engines.blocks.engine import BlocksEngine
from lotan.engines.blocks.settings import BlocksSettings
from lotan.engines.rows.engine import RowsEngine, RowsSettings
from lotan.hosts.jar import JAR
from tests.exactness.groups import ATTENTION, BY_GROUP, grouped_graph, model_of
from tests.exactness.test_norms_on_spark import assert_pass_equals_local

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
    """The same as `assert_pass_equals_local`, for a model that reduces by groups."""
    graph = grouped_graph(grouped=name not in WITHOUT, groups=1 if name in ATTENTION else 4)
    assert_pass_equals_local(model_of(name), graph, kind, engine)


@pytest.mark.parametrize("name", others_than("VirtualNode", "SGFormer"))
def test_blocks_equal_local(spark, workers, name):
    settings = BlocksSettings(partitions=1 + len(name) % 4, chunk_rows=8, shuffled=bool(len(name) % 2))
    assert_equals_local(name, "blocks", BlocksEngine(spark, workers.link, workers.endpoint, settings))


@pytest.mark.nightly
@pytest.mark.parametrize("name", others_than("max"))
def test_rows_equal_local(spark, workers, name):
    settings = RowsSettings(partitions=1 + len(name) % 3, chunk_rows=8)
    assert_equals_local(name, "rows", RowsEngine(spark, workers.link, workers.endpoint, settings))
