"""planner.records against dataclasses.replace."""

from dataclasses import fields, replace

import pytest

from planner.physical import Column
from planner.records import changed
from planner.steps.edge_sum import EdgeSumStep
from planner.steps.pipe import PipeStep

STEP = PipeStep("train.0", "backward", ("features", "label"), (), (), (Column("h", (4,)),), within=2)
ON_EDGES = EdgeSumStep(
    Column("h", (2,)), "graph", "scores", "source", within=1
)  # with fields that are given by name alone


@pytest.mark.parametrize(
    ("record", "changes"),
    [(STEP, {"inputs": ("features",), "within": None}), (ON_EDGES, {"end": "destination"}), (STEP, {})],
)
def test_is_what_the_standard_library_makes(record, changes):
    found, expected = changed(record, **changes), replace(record, **changes)

    assert found == expected
    assert type(found) is type(expected)
    assert hash(found) == hash(expected)
    assert set(vars(found)) == {field.name for field in fields(record)}


def test_leaves_what_is_cached_of_the_old_one_behind():
    assert STEP.reads == ("features", "label")

    assert changed(STEP, inputs=("features",)).reads == ("features",)
    assert STEP.reads == ("features", "label")


def test_names_a_field_that_is_not_there():
    with pytest.raises(TypeError, match=r"Column has no field \['label'\]"):
        changed(Column("h", (4,)), label="x")
    assert STEP.reads
    with pytest.raises(TypeError, match=r"PipeStep has no field \['reads'\]"):  # it is cached
        changed(STEP, reads=())
