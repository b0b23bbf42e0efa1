"""Who reads what of a pass: what may be computed as it is read, what is spare, and after whom a column is spent."""

from __future__ import annotations

from lotan.engines.blocks.reading import Reading, find_spares
from planner.physical import Column
from planner.steps.collect import CollectStep
from planner.steps.pipe import Gradients, PipeStep
from planner.steps.propagate import PropagateStep
from tests.exactness.cases import sample
from tests.exactness.steps import OPTIONS, plan_of


def test_a_gcn_computes_every_propagate_as_it_is_read_and_sends_no_rows_twice() -> None:
    plan = plan_of("GCN", sample(0), OPTIONS["auto"]).plan
    reading = Reading(plan.train, find_spares(plan))
    propagates = [step.output.name for step in plan.train if isinstance(step, PropagateStep)]
    assert reading.as_read == frozenset(propagates)
    for step in plan.train:
        if isinstance(step, PipeStep) and step.mode == "backward":
            propagated = set(step.inputs) & set(propagates)
            assert reading.spared(step) == propagated, "what follows from a propagate is kept by the worker"
    made = {name: count for name, count in reading.pipes.items() if name in propagates}
    assert set(made.values()) == {1}


def test_forward_steps_spare_nothing() -> None:
    plan = plan_of("GCN", sample(0), OPTIONS["auto"]).plan
    reading = Reading(plan.train, find_spares(plan))
    assert not any(reading.spared(s) for s in plan.train if isinstance(s, PipeStep) and s.mode != "backward")


def pipe(stage: str, *inputs: str, out: str = "", mode: str = "forward", collections: tuple[str, ...] = ()) -> PipeStep:
    outputs = (Column(out, (2,)),) if out else ()
    return PipeStep(stage, mode, inputs, collections, (), outputs)


def propagate(column: str, out: str) -> PropagateStep:
    return PropagateStep(column, Column(out, (2,)), "graph")


NONE = {name: frozenset[str]() for name in "abc"}


def test_rows_that_two_pipes_read_are_not_computed_as_they_are_read() -> None:
    steps = [pipe("a", "x", out="y"), propagate("y", "z"), pipe("b", "z"), pipe("c", "z")]
    assert Reading(steps, NONE).as_read == frozenset()
    assert Reading(steps[:3], NONE).as_read == {"z"}


def test_neither_are_those_that_others_read() -> None:
    first = [pipe("a", "x", out="y"), propagate("y", "z"), pipe("b", "z")]
    assert Reading([*first, propagate("z", "w")], NONE).as_read == frozenset()
    collected = [*first[:2], CollectStep(("z",), "graph", "n"), pipe("b", "z", collections=("n",))]
    assert Reading(collected, NONE).as_read == frozenset()


def test_a_spare_reader_does_not_count() -> None:
    backward = PipeStep("b", "backward", ("z",), (), (Gradients("v", ("g",)),), ())
    steps = [pipe("a", "x", out="y"), propagate("y", "z"), pipe("b", "z", out="g"), backward]
    assert Reading(steps, NONE | {"b": frozenset("z")}).as_read == {"z"}
    assert Reading(steps, NONE).as_read == frozenset()


def test_a_column_is_spent_after_the_pipes_that_read_it_through_sums_or_straight() -> None:
    steps = [pipe("a", "x", out="y"), propagate("y", "z"), pipe("b", "z"), pipe("c", "y")]
    reading = Reading(steps, NONE)
    assert reading.as_read == {"z"}
    assert reading.readers(["y"]) == [steps[2], steps[3]]


def test_nobody_knows_when_other_readers_are_done() -> None:
    steps = [pipe("a", "x", out="y"), propagate("y", "z"), pipe("b", "z"), pipe("c", "z")]
    assert Reading(steps, NONE).readers(["y"]) is None
    collected = [pipe("a", "x", out="y"), CollectStep(("y",), "graph", "n"), pipe("b", collections=("n",))]
    assert Reading(collected, NONE).readers(["y"]) is None
