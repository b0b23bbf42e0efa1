"""Learned rows in plans: what is never computed once, how far they are pruned, and what batches of models share."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import lotan.nn
from lotan.tracing.trace import trace_modes
from planner import Options, Planned
from planner.batch import compile_batch
from planner.cost.seconds import Pricing, epoch_seconds
from planner.explain.formats import explain
from planner.footprint import footprint
from planner.nodes import MatMul, Parameter, Propagate
from planner.regime import hops_of_plan
from planner.rules.hoist_invariant import hoist_invariant
from planner.spec import ValueType
from planner.statistics import Statistics
from planner.steps.learned_rows import (
    LearnedRows,
    LearnedRowsGradientStep,
    LearnedRowsStep,
    learned_bytes,
    learned_parameters,
)
from planner.steps.step import Step
from tests.planner.engines import BLOCKS, LOCAL
from tests.planner.specs import planned


class Embedded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows, self.encoder = lotan.nn.LearnedFeatures(4), lotan.nn.GCN(4, 8, 2, 3)

    def forward(self, x: Tensor, graph: lotan.nn.EdgeIndex) -> Tensor:
        return self.encoder(self.rows(graph), graph)


def plan(statistics: Statistics, **options: object) -> Planned:
    train, evaluate = trace_modes(Embedded(), 0)
    return planned(train, evaluate, Options(**options), 3, replace(statistics, width=0))


def of_rows(steps: tuple[Step, ...]) -> list[tuple[str, int | None]]:
    kinds = LearnedRowsStep | LearnedRowsGradientStep
    return [(step.parameter, step.within) for step in steps if isinstance(step, kinds)]


@pytest.mark.parametrize("trainable", [True, False])
def test_a_sum_of_learned_rows_is_not_computed_once(trainable: bool) -> None:
    """Not even of frozen ones: columns that are computed once are kept for other models, with other rows."""
    summed = Propagate(LearnedRows("rows.weight", (4,), trainable), "graph")
    product = MatMul("aten.linear.default", (summed, Parameter("w", (9, 4))), (), ValueType("vertex", (9,)))
    assert not hoist_invariant(product).columns


def test_rows_are_read_and_handed_in_within_the_level_that_needs_them() -> None:
    few = plan(Statistics(1_000_000, 2_000_000, 0, training=10), disabled=("reuse_evaluation",)).plan
    assert of_rows(few.train) == [("rows.weight", 2), ("rows.weight", 2)]
    assert of_rows(few.evaluate) == [("rows.weight", None)]
    whole = plan(Statistics(100, 500, 0, training=90), disabled=("prune_vertices",)).plan
    assert of_rows(whole.train) == [("rows.weight", None), ("rows.weight", None)]
    assert "rows.weight" in whole.trainable
    assert {name: step.output.width for name, step in learned_parameters(whole).items()} == {"rows.weight": 4}


def test_rows_need_no_further_hop() -> None:
    sampled = Statistics(30, 40, 0, training=5, sampled=((5, 10), (15, 40), (30, 40)))
    assert hops_of_plan(plan(sampled).plan) == 2


def test_each_model_of_a_batch_has_rows_of_its_own() -> None:
    plans = [plan(Statistics(100, 500, 0, training=90)).plan] * 2
    batch = compile_batch(plans)
    assert len(batch.stacks) == 2
    assert [name for name, _ in of_rows(batch.plan.train)] == ["0/rows.weight"] * 2 + ["1/rows.weight"] * 2


def test_the_ways_between_driver_and_spark_are_priced_and_shown() -> None:
    """100 rows of 4 numbers go out, and their gradient comes back."""
    sizes = Statistics(100, 500, 0, training=90)
    whole = {"disabled": ("prune_vertices",)}
    here, on_spark = (plan(sizes, pricing=Pricing(traits), **whole) for traits in (LOCAL, BLOCKS))
    assert epoch_seconds(here.plan, sizes, Pricing(LOCAL)).moved("driver") == 0
    costs = [
        epoch_seconds(on_spark.plan, sizes, Pricing(BLOCKS, measured=replace(BLOCKS.rates, driver_bytes=rate)))
        for rate in (1e-8, 1.0)
    ]
    assert [cost.moved("driver") for cost in costs] == [2 * 100 * 4 * 4] * 2
    assert costs[1].seconds - costs[0].seconds == pytest.approx(3200)  # nothing runs beside
    assert "3.2 kB between driver and Spark" in explain(on_spark)


def test_rows_that_lie_in_spark_move_no_byte_and_take_less_of_the_driver() -> None:
    """Checkpoints bring all that is known of them to the driver, as if they lay there."""
    sizes = Statistics(1_000_000, 5_000_000, 0, training=90)
    here = Pricing(BLOCKS).layout
    there, kept = replace(here, rows_in_spark=True), replace(here, rows_in_spark=True, rows_in_checkpoints=True)
    whole = plan(sizes, disabled=("prune_vertices",), pricing=Pricing(BLOCKS)).plan
    assert epoch_seconds(whole, sizes, Pricing(BLOCKS, there)).moved("driver") == 0
    least = [footprint(BLOCKS, whole, sizes, layout).least for layout in (here, there, kept)]
    assert least[0] - least[1] == 2 * learned_bytes(whole, sizes)
    assert least[2] == least[0]
    heaps = [footprint(BLOCKS, whole, sizes, layout).heap for layout in (here, there)]
    assert heaps[1] > heaps[0] + 8 * learned_bytes(whole, sizes), "in Spark's storage, with garbage"
