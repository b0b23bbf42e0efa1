"""A plan on Spark that is pruned a hop too near is refused, or its numbers are wrong and the comparison shows it."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from lotan.errors import EngineError
from planner.rules import prune_vertices
from tests.exactness.cases import EVERY, models, sample, trained_on
from tests.exactness.steps import assert_equals_truth, plan_of, train
from tests.exactness.test_blocks import PRUNING, blocks
from tests.exactness.test_rows import few, pruned, rows

pytestmark = [pytest.mark.nightly, pytest.mark.spark]


@pytest.mark.parametrize("name", ["GCN", "GAT", "GraphSAGE, max"])
def test_a_plan_that_is_pruned_a_hop_too_near_is_refused(name, spark, workers, monkeypatch):
    monkeypatch.setattr(prune_vertices, "_hops", lambda step: dict.fromkeys(step.reads, 0))
    drawn = trained_on(sample(3, 24, 20, weighted=EVERY[name].weights), [0, 9])
    planned = plan_of(name, drawn, PRUNING)
    for shuffled in (False, True):
        with blocks(spark, workers, 2, shuffled) as engine, pytest.raises((EngineError, PySparkException)):
            train(engine, planned, models(name, seed=3)[0], drawn)


@pytest.mark.parametrize("name", ["GCN", "GAT"])
def test_pruning_one_hop_too_few_is_caught(name, spark, workers, monkeypatch):
    """On rows, what is missing is zero."""
    drawn = few(name, 2, [0, 9])
    ours, truth = models(name, seed=2)
    monkeypatch.setattr(prune_vertices, "_hops", lambda step: dict.fromkeys(step.reads, 0))
    with rows(spark, workers, 2) as engine:
        found = train(engine, pruned(name, drawn), ours, drawn)
    with pytest.raises(AssertionError, match="is allowed"):
        assert_equals_truth(found, name, truth, drawn)
