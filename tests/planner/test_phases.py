"""What planning does once for training and evaluation, where the two are alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.build import build
from planner.lower import insert_collects, lower, rename_stages
from planner.phases import drops_alone
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
