"""Where the models of a batch share their steps."""

from __future__ import annotations

import pytest

from lotan.nn import GCN
from lotan.tracing.trace import trace
from planner.batch import compile_cheapest
from planner.statistics import Statistics
from tests.planner.specs import planned


def batch(hidden: int, statistics: Statistics):
    model = GCN(statistics.width, hidden, 3, 40, dropout=0.5)
    found = planned(
        *(trace(model, statistics.width, training=training) for training in (True, False)), None, 40, statistics
    )
    return compile_cheapest([found.plan] * 4, statistics, found.options.pricing)


@pytest.mark.parametrize(("hidden", "stacks"), [(16, 1), (256, 4)])
def test_models_share_steps_unless_their_columns_together_leave_the_caches(hidden, stacks):
    found = batch(hidden, Statistics(20_000, 200_000, 128, training=10_800))
    assert len(found.stacks) == stacks
    assert ("share_models" in found.plan.fired) == (stacks == 1)
    assert found.plan.models == 4
    assert (found.if_shared is None) == (stacks == 1)
    assert stacks == 1 or found.if_shared > 1
