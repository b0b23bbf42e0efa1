"""The step loop: what it hands to an engine, when it lets go, and what it leaves after a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lotan.engines.base import Engine, Outcome, Pass, run
from planner.physical import Column, Plan
from planner.steps.collect import CollectStep, GatherStep
from planner.steps.pipe import Gradients, PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step
from planner.steps.total import TotalGradientStep, TotalStep
from planner.traits import EngineTraits

STATIC = Column("features", (3,), static=True)


def column(name: str) -> Column:
    return Column(name, (3,))


STEPS: tuple[Step, ...] = (
    PipeStep("s0", "forward", ("features",), (), (), (column("a"), column("unread"))),
    PropagateStep("a", column("b"), "graph"),
    CollectStep(("b", "features"), "graph", "n"),
    PipeStep("s1", "turn", ("b", "label", "split"), ("n",), (), (column("d_b"), column("d_n")), ("d_n",)),
    GatherStep("d_n", column("d_b2")),
    PipeStep("s0", "backward", ("features",), (), (Gradients("x", ("d_b", "d_b2")),), ()),
)
PLAN = Plan((), STEPS, (), (), (STATIC, Column("label", (), static=True), Column("split", (), static=True)), ())


class Recorder(Engine):
    """Handles are the names in capitals; everything that happens is written down."""

    traits = EngineTraits("recorder")

    def __init__(self, fail: str = "") -> None:
        self.log: list[str] = []
        self.fail = fail

    def note(self, event: str) -> None:
        self.log.append(event)
        if self.fail and event.startswith(self.fail):
            raise RuntimeError(event)

    def lay_out(self, graph: Any, plan: Plan) -> None:
        self.note("lay out")

    def adapt(self, plan: Plan) -> None:
        self.note("adapt")

    def adopt(self, plan: Plan, columns: Any) -> None:
        self.note(f"adopt {' '.join(columns)}")

    def static(self, name: str) -> str:
        return name.upper()

    def propagate(self, step: PropagateStep, column: str) -> str:
        self.note(f"propagate {column}")
        return step.output.name.upper()

    def total(self, step: TotalStep, columns: Mapping[str, str]) -> str:
        self.note(f"total {' '.join(columns.values())}")
        return step.output.name.upper()

    def total_gradient(self, step: TotalGradientStep, columns: Mapping[str, str]) -> str:
        self.note(f"total gradient {' '.join(columns.values())}")
        return step.output.name.upper()

    def collect(self, step: CollectStep, columns: Sequence[str]) -> str:
        self.note(f"collect {' '.join(columns)}")
        return step.output.upper()

    def gather(self, step: GatherStep, contributions: str) -> str:
        self.note(f"gather {contributions}")
        return step.output.name.upper()

    def pipe(self, step: PipeStep, values: Mapping[str, str]) -> dict[str, str]:
        self.note(f"pipe {step.stage} {step.mode} {' '.join(values.values())}")
        assert all(handle == name.upper() for name, handle in values.items())
        return {made.name: made.name.upper() for made in step.outputs}

    def read(self, handle: str) -> pd.DataFrame:
        return pd.DataFrame({"id": [0], "values": [handle]})

    def release(self, handle: str) -> None:
        self.note(f"release {handle}")

    def begin(self, plan: Plan, steps: Sequence[Step], a_pass: Pass) -> None:
        self.note("begin")

    def finish(self, kept: Mapping[str, str]) -> Outcome:
        self.note("finish")
        return Outcome(columns=kept)

    def abort(self) -> None:
        self.note("abort")

    def close(self) -> None:
        self.note("close")


def walk(engine: Recorder, keep: tuple[str, ...] = ()) -> Outcome:
    return run(engine, PLAN, STEPS, Pass(0, {}), keep)


def test_loading_computes_what_is_computed_once_and_has_it_adopted() -> None:
    once = PropagateStep("features", column("hoisted_1"), "graph")
    engine = Recorder()
    engine.load(None, replace(PLAN, prepare=(once,), hoisted=(replace(once.output, static=True),)))
    assert engine.log == ["lay out", "begin", "propagate FEATURES", "finish", "adopt hoisted_1"]


def test_every_handle_is_released_once_after_its_last_use() -> None:
    engine = Recorder()
    walk(engine)
    assert engine.log == [
        "begin",
        "pipe s0 forward FEATURES",
        "release UNREAD",
        "propagate A",
        "release A",
        "collect B FEATURES",
        "pipe s1 turn B LABEL SPLIT N",
        "release B",
        "release N",
        "gather D_N",
        "release D_N",
        "pipe s0 backward FEATURES D_B D_B2",
        "release D_B",
        "release D_B2",
        "finish",
    ]


def test_what_is_kept_is_the_callers() -> None:
    engine = Recorder()
    assert walk(engine, keep=("b", "features")).columns == {"b": "B", "features": "FEATURES"}
    assert "release B" not in engine.log
    assert "release N" in engine.log


@pytest.mark.parametrize("fail", ["pipe s0 forward", "propagate", "collect", "gather", "pipe s0 backward", "finish"])
def test_after_a_failure_nothing_is_held(fail: str) -> None:
    engine = Recorder(fail)
    with pytest.raises(RuntimeError, match=fail):
        walk(engine, keep=("b",))
    assert engine.log[-1] == "abort"
    released = [event for event in engine.log if event.startswith("release")]
    assert len(released) == len(set(released))
    made = {"pipe s0 forward": 0, "propagate": 2, "collect": 3, "gather": 6, "pipe s0 backward": 7, "finish": 7}
    assert len(released) == made[fail]


def test_a_batch_names_parameters_by_model_and_its_outcome_is_told_apart_again() -> None:
    weights = [{"w": torch.tensor([float(model)]), "a/b": torch.zeros(1)} for model in range(11)]
    a_pass = Pass.of_batch(3, weights, seeds=range(11))
    assert len(a_pass.parameters) == 22
    assert a_pass.randomness.of(10) == Pass(3, {}, seed=10).randomness
    statistics = np.arange(11 * 2, dtype=np.float64).reshape(11, 1, 2)
    apart = Outcome(a_pass.parameters, statistics).by_model(11)
    assert [one.gradients for one in apart] == weights
    assert all(one.statistics is not None and one.statistics[0, 0] == 2 * n for n, one in enumerate(apart))
    assert all(one.evaluation is None for one in apart)
