"""What planning does once for training and evaluation, where the two are alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import Mock

import pytest

import planner.phases
from planner.build import build
from planner.inference import rename_stages, without_draws
from planner.lower import Forward, insert_collects, lower
from planner.phases import Phases, drops_alone
from planner.physical import Stage, StageInput, StageOutput
from planner.spec import Argument, Call, LossSpec, Ref, Spec, ValueType
from tests.planner.specs import attention, gcn

ROWS = ValueType("vertex", (8,))


def call(output: str, op: str, *arguments: Argument) -> Call:
    return Call(output, f"aten.{op}", arguments, ROWS)


def spec(*calls: Call) -> Spec:
    return Spec(8, (), calls, calls[-1].output)


HIDDEN, X, DROPPED = call("hidden", "relu.default", Ref("features")), Ref("hidden"), Ref("dropped")
DROPOUT = call("dropped", "dropout.default", X, 0.5, True)
TRAINING = spec(HIDDEN, DROPOUT, call("out", "add.Tensor", DROPPED, X))


@pytest.mark.parametrize(
    ("training", "evaluation"),
    [
        (TRAINING, spec(HIDDEN, call("out", "add.Tensor", X, X))),
        (spec(HIDDEN, DROPOUT), spec(HIDDEN)),
        (spec(HIDDEN, DROPOUT, call("again", "dropout.default", DROPPED, 0.5, True)), spec(HIDDEN)),
        (
            spec(HIDDEN, DROPOUT, call("out", "cat.default", (DROPPED, X), -1)),
            spec(HIDDEN, call("out", "cat.default", (X, X), -1)),
        ),
    ],
)
def test_training_is_evaluation_but_for_its_dropout(training, evaluation):
    assert drops_alone(training, evaluation)
    assert drops_alone(training, training) is False  # it drops in evaluation, too


@pytest.mark.parametrize(
    "evaluation",
    [
        spec(HIDDEN, call("out", "add.Tensor", X, Ref("features"))),
        spec(HIDDEN, call("out", "sub.Tensor", X, X)),
        spec(HIDDEN, call("out", "add.Tensor", X, X), call("more", "relu.default", Ref("out"))),
        spec(HIDDEN),
        replace(spec(HIDDEN, call("out", "add.Tensor", X, X)), output="hidden"),
        spec(call("hidden", "tanh.default", Ref("features")), call("out", "add.Tensor", X, X)),
    ],
)
def test_it_is_not_where_anything_else_differs(evaluation):
    assert not drops_alone(TRAINING, evaluation)


@pytest.mark.parametrize("model", [gcn(training=False), attention()], ids=["of sums", "that collects"])
def test_renamed_stages_are_those_of_evaluation(model):
    root, loss = insert_collects(build(model)), LossSpec("classification", 3, 10.0)
    training, evaluation = (lower(root, loss, prefix, fuse=True) for prefix in ("train", "evaluate"))
    assert training != evaluation == rename_stages(training, "train", "evaluate")


@pytest.mark.parametrize("model", [gcn, lambda training: attention(dropout=training)], ids=["of sums", "on edges"])
@pytest.mark.parametrize("fuse", [True, False])
def test_evaluation_is_taken_from_the_stages_of_training(model, fuse, monkeypatch):
    """Also where rules have come between: as it is lowered by itself."""
    specs, loss = (model(training=True), model(training=False)), LossSpec("classification", 3, 10.0)
    phases, abilities = Phases(*specs, loss), ("edge_columns",)
    roots = [graph.root for graph in phases.rewritten(phases.logical(weighted=True), frozenset(), abilities)]
    by_itself = lower(insert_collects(roots[1]), loss, "evaluate", fuse)
    monkeypatch.setattr(planner.phases, "without_draws", taken := Mock(side_effect=without_draws))

    training, evaluation = phases.lowered(*roots, fuse)

    assert evaluation == by_itself
    assert (taken.call_count, "dropout" in str(training), "dropout" in str(evaluation)) == (1, True, False)


ROW_OF_3 = ValueType("vertex", (3,))
DROPS = Call("dropout_1", "lotan.dropout", (Ref("h"), 0.5, 0), ROW_OF_3)
MAKES_H = Call("h", "aten.relu.default", (Ref("x"),), ROW_OF_3)


def stage(calls: Sequence[Call], output: str, static: bool = False) -> Forward:
    given = StageInput("x", "x", (3,), static=static)
    return Forward((Stage("train.0", (given,), (), tuple(calls), (StageOutput(output, output, (3,)),)),), ())


@pytest.mark.parametrize(
    ("why", "forward"),
    [
        ("nothing is left", stage([replace(DROPS, arguments=(Ref("x"), 0.5, 0))], "dropout_1")),
        ("made of static columns", stage([MAKES_H, DROPS], "dropout_1", static=True)),
        ("h is read beside it", stage([MAKES_H, DROPS, call("y", "add.Tensor", Ref("dropout_1"), Ref("h"))], "y")),
        ("h is put out beside it", stage([MAKES_H, DROPS, call("y", "neg.default", Ref("dropout_1"))], "h")),
    ],
)
def test_stages_that_would_be_cut_elsewhere_are_not_taken(why, forward):
    assert without_draws(forward) is None, why


def test_a_column_is_named_after_what_it_then_holds():
    found = without_draws(stage([MAKES_H, DROPS], "dropout_1"))
    assert found == stage([MAKES_H], "h")
