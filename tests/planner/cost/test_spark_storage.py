"""Columns for which Spark's storage has no room: their bytes against a count by hand, their seconds, and what explain says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.compiler import Options
from planner.cost.seconds import Pricing, epoch_seconds
from planner.cost.spark_storage import stored_bytes
from planner.estimate import columns_bytes
from planner.explain.formats import explain
from planner.layout import Layout
from planner.lifetimes import alive_bytes
from planner.shares import Crew
from planner.statistics import Statistics
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.topology import topology
from tests.planner.engines import BLOCKS
from tests.planner.specs import IN_PLACE, gcn, planned

LAYOUT = Layout(Crew(2, 2), 2, cores=2)
LARGE = Statistics(vertices=100_000, edges=200_000, width=8)
PLANNED = planned(gcn(), gcn(training=False), Options(disabled=IN_PLACE, pricing=Pricing(BLOCKS)))
PLAN = PLANNED.plan
SIZES = columns_bytes(PLAN, PLAN.train, LARGE)


def filed(storage: int | None, **layout: bool) -> tuple[float, float]:
    """Bytes, and seconds of an epoch."""
    pricing = Pricing(BLOCKS, replace(LAYOUT, storage=storage, **layout))
    cost = epoch_seconds(PLAN, LARGE, pricing)
    return cost.filed[0], cost.seconds


@pytest.mark.parametrize("shuffled", [False, True])
def test_less_storage_takes_longer_and_enough_takes_nothing(shuffled: bool) -> None:
    everything = sum(SIZES.values()) + topology(PLAN, LARGE, 2)
    found = [filed(int(share * everything), shuffled=shuffled) for share in (1, 0.5, 0.25, 0)]
    assert found[0] == filed(None, shuffled=shuffled)
    assert found[0][0] == 0
    assert found == sorted(found)
    assert len(set(found)) == 4


def test_without_storage_columns_are_written_once_and_read_by_each_reader() -> None:
    """On executors, sums are columns as well; in one JVM, the pipe that reads them makes them."""
    blocks = topology(PLAN, LARGE, 2)

    def by_hand(without: set[str]) -> float:
        names = [name for step in PLAN.train for name in {*step.reads, *step.makes} - without]
        graph = sum(not isinstance(step, PipeStep) for step in PLAN.train)
        return float(sum(SIZES.get(name, 0) for name in names) + graph * blocks)

    sums = {step.output.name for step in PLAN.train if isinstance(step, PropagateStep)}
    assert sums
    assert filed(0, shuffled=True)[0] == by_hand(set())
    assert filed(0)[0] == by_hand(sums)


def test_only_what_exceeds_storage_counts_while_it_exists() -> None:
    storage = topology(PLAN, LARGE, 2) + max(alive_bytes(PLAN, PLAN.train, LARGE)) - 1
    found = stored_bytes(PLAN, PLAN.train, LARGE, replace(LAYOUT, storage=storage))
    fullest = [alive - (storage - topology(PLAN, LARGE, 2)) == 1 for alive in alive_bytes(PLAN, PLAN.train, LARGE)]
    assert [moved > 0 for moved in found] == fullest


def test_sums_in_turn_count_their_files_themselves() -> None:
    assert filed(0, in_turn=True) == filed(None, in_turn=True)


def test_explain_says_in_one_line_what_goes_to_the_disk_and_how_long_that_takes() -> None:
    def head(storage: int | None, turn: bool = False, shuffled: bool = False) -> str:
        layout = replace(LAYOUT, storage=storage, in_turn=turn, shuffled=shuffled)
        return " ".join(explain(PLANNED.described(pricing=Pricing(BLOCKS, layout))).split())

    assert "Disk" not in head(None)
    assert "Disk" not in head(1 << 40)
    assert "kB to Spark's local disk or from there" in head(0)
    assert "its storage in memory has room for 0 B" in head(0)
    assert "few rows at a time" in head(0, turn=True)
    assert "not checked" not in head(0)
    assert "cannot be seen from here, and are not checked" in head(0, shuffled=True)


def test_explain_says_under_a_limit_that_the_disks_of_executors_are_not_checked() -> None:
    for limit, shuffled in ((None, True), (1 << 40, False), (1 << 40, True)):
        pricing = Pricing(BLOCKS, replace(LAYOUT, shuffled=shuffled))
        text = explain(PLANNED.described(pricing=pricing, memory_limit=limit))
        assert ("not checked" in text) == (limit is not None and shuffled)
