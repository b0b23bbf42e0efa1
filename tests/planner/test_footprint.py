"""Estimated memory against sums by hand and by brute force; shares of a limit add up to it."""

from __future__ import annotations

import pytest

from lotan.stages.program import StageProgram
from planner.compiler import Options
from planner.cost.seconds import Pricing
from planner.footprint import footprint, in_hand
from planner.keeping import saved_row_bytes
from planner.layout import Layout
from planner.local_memory import local_bytes
from planner.physical import Plan
from planner.shares import LEAST_HEAP, MIB, Crew, divide, fixed_bytes, least_limit
from planner.statistics import Statistics
from planner.topology import topology
from tests.exactness.cases import EVERY, sample
from tests.exactness.steps import plan_of
from tests.planner.engines import BLOCKS, SAMPLES
from tests.stages.test_flat import MODELS, stages_of

LARGE = Statistics(vertices=1_000_000, edges=10_000_000, width=128)
CREW = Crew(workers=2, tasks=2)


def plans() -> dict[str, Plan]:
    """Of every model of the exactness tests, as the blocks engine runs it."""
    options = Options(pricing=Pricing(BLOCKS))
    return {name: plan_of(name, sample(3, weighted=EVERY[name].weights), options).plan for name in EVERY}


@pytest.mark.parametrize("name", MODELS)
def test_what_a_stage_keeps_is_what_its_kernels_keep(name: str) -> None:
    for stage in stages_of(name):
        if stage.name.startswith("train"):
            body = StageProgram(stage)._body
            kept = sum(4 * body.widths[slot] for slot in body.kept.values())
            assert kept == saved_row_bytes(stage)


def test_more_partitions_and_fewer_tasks_have_less_in_hand() -> None:
    plan = plans()["GCN"]
    few, many = (in_hand(plan, LARGE, Layout(CREW, partitions)) for partitions in (2, 16))
    assert many < few
    assert in_hand(plan, LARGE, Layout(Crew(1, 1), 16)) <= many
    assert many > topology(plan, LARGE, 16) + LARGE.vertices * 4  # a propagate reads a whole column


@pytest.mark.parametrize("engine", ["local", "blocks", "rows"])
def test_estimates_grow_with_the_graph(engine: str) -> None:
    for name, plan in plans().items():
        layout = Layout(Crew(2, 2, spark_python=engine == "rows"), 16)
        small, large = (footprint(SAMPLES[engine], plan, of, layout) for of in (Statistics(100, 300, 4), LARGE))
        assert small.least <= large.least, name
        assert small.peak <= large.peak, name
    layout = Layout(CREW, 2)
    local = footprint(SAMPLES["local"], plans()["GCN"], LARGE, layout)
    # a limit is to hold for every model
    assert local.in_memory > local.peak > local_bytes(plans()["GCN"], LARGE, layout)


def test_files_hold_on_local_what_grows_with_the_layers() -> None:
    layout = Layout(CREW, 2)
    each = (plans()[name] for name in ("GCN", "GCN, three layers, jumping"))
    shallow, deep = (footprint(SAMPLES["local"], plan, LARGE, layout) for plan in each)
    assert deep.least - shallow.least < (deep.in_memory - shallow.in_memory) / 10
    assert deep.on_disk > shallow.on_disk > 0
    assert deep.spills(deep.in_memory - 1)
    assert not deep.spills(deep.in_memory)
    assert not deep.spills(None)


def test_the_least_limit_of_blocks_is_that_of_their_least_heap() -> None:
    """Columns that have no room in the heap go to the disk; what tasks have in hand does not."""
    layout = Layout(CREW, partitions=200)
    found = footprint(BLOCKS, plans()["GCN"], LARGE, layout)
    assert found.least == least_limit(found.least_heap, CREW, layout.saved)
    assert found.least_heap > in_hand(plans()["GCN"], LARGE, layout)


def test_what_is_small_is_estimated_as_little_more_than_the_processes() -> None:
    """Neither shared memory nor heaps are counted in full where nothing is there to fill them."""
    plan, small = plans()["GCN"], Statistics(100, 300, 4)
    for engine in ("blocks", "rows"):
        crew = Crew(2, 2, spark_python=engine == "rows")
        beside = footprint(SAMPLES[engine], plan, small, Layout(crew, 2)).peak - fixed_bytes(crew)
        assert 0 < beside < LEAST_HEAP


def test_workers_that_may_keep_nothing_keep_nothing_between_forward_and_backward() -> None:
    plan = plans()["GIN"]
    none, some, any_ = (
        footprint(SAMPLES["blocks"], plan, LARGE, Layout(CREW, 16, saved)).peak for saved in (0, MIB, None)
    )
    assert some - none == CREW.workers * MIB
    assert any_ > some


@pytest.mark.parametrize("saved", [None, 0, 100 * MIB])
@pytest.mark.parametrize("crew", [Crew(1, 1), Crew(2, 2), Crew(4, 2), Crew(2, 4, spark_python=True), Crew(0, 2)])
def test_shares_add_up_to_the_limit(crew: Crew, saved: int | None) -> None:
    for limit in (6 << 30, 50 << 30):
        shares = divide(limit, crew, saved)
        each = shares.saved + shares.kept
        total = fixed_bytes(crew) + shares.heap + crew.workers * each + crew.tasks * shares.shared
        assert total <= limit
        if crew.workers and saved is None:
            assert total > limit - 8 * MIB


@pytest.mark.parametrize("heap", [0, LEAST_HEAP, 3000 * MIB])
def test_the_least_limit_is_the_least(heap: int) -> None:
    least = least_limit(heap, CREW)
    assert divide(least, CREW).heap >= max(heap, LEAST_HEAP)
    assert divide(least - 2 * MIB, CREW).heap < heap or heap <= LEAST_HEAP
