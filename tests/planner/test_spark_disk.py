"""Bytes on Spark's local disk: edges and what sums in turn put into files are among them, and the tables as they come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.compiler import Options
from planner.estimate import column_bytes
from planner.footprint import footprint, held
from planner.layout import Layout
from planner.physical import Plan
from planner.shares import Crew
from planner.spark_disk import blocks_disk_bytes
from planner.statistics import Statistics
from planner.steps.propagate import PropagateStep
from planner.topology import topology
from tests.planner.engines import ON_BLOCKS, ROWS
from tests.planner.specs import IN_PLACE, gcn, planned

LAYOUT = Layout(Crew(2, 2), 2, cores=2)
LARGE = Statistics(vertices=100_000, edges=2_000_000, width=8)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planned(gcn(), gcn(training=False), Options(disabled=IN_PLACE, pricing=ON_BLOCKS)).plan


def on_disk(plan: Plan, statistics: Statistics = LARGE, layout: Layout = LAYOUT) -> int:
    return footprint(ON_BLOCKS.traits, plan, statistics, layout).on_disk


def test_blocks_put_columns_and_edges_there_beside_the_tables_as_they_were_sent(plan: Plan) -> None:
    """A label and 8 features of 4 bytes each, and what else is static; two ends of 8 bytes."""
    static = sum(column_bytes(column, LARGE) for column in plan.static_columns)
    sent = static + 16 * LARGE.edges
    loading = 3 * static + 64 * LARGE.edges
    running = held(plan, LARGE) + topology(plan, LARGE, 2)
    assert running != loading
    assert on_disk(plan) == sent + max(running, loading)
    few = replace(LARGE, edges=20_000)
    running, loading = held(plan, few) + topology(plan, few, 2), 3 * static + 64 * few.edges
    assert on_disk(plan, few) == static + 16 * few.edges + max(running, loading)


def test_sums_in_turn_also_put_their_columns_and_edges_into_files(plan: Plan) -> None:
    turn = replace(LAYOUT, in_turn=True)
    columns = held(plan, LARGE)
    steps = [step for step in plan.train if isinstance(step, PropagateStep)]
    summed = 4 * LARGE.vertices * sum(step.output.width for step in steps)
    more = blocks_disk_bytes(plan, LARGE, turn, 10 * columns) - blocks_disk_bytes(plan, LARGE, LAYOUT, 10 * columns)
    assert more >= summed
    assert on_disk(plan, layout=turn) > on_disk(plan)


def test_rows_put_edges_there_too(plan: Plan) -> None:
    found = [footprint(ROWS, plan, replace(LARGE, edges=edges), LAYOUT).on_disk for edges in (2_000_000, 3_000_000)]
    assert found[1] - found[0] == 64 * 1_000_000
