"""What a pipe returns is what plan and stage agree on; anything else is told, not cut short."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lotan.engines.rows.pipe import PipeBuilder
from lotan.errors import EngineError
from planner.physical import Column, Stage, StageInput, gradient_name
from planner.steps.pipe import PipeStep

INPUTS = tuple(StageInput(name, name, (4,), needs_gradient=True) for name in ("a", "b"))
STAGE = Stage("stage0", INPUTS, (), (), ())
GRADIENTS = tuple(Column(gradient_name(name, "stage0"), (4,)) for name in ("a", "b"))
STEP = PipeStep("stage0", "backward", ("a", "b"), (), (), GRADIENTS)


def _returned(step: PipeStep) -> list[str]:
    return [item.tensor for item in PipeBuilder(None, step, STAGE, {}, None).returned()]  # type: ignore[arg-type]


def test_in_the_order_of_the_outputs() -> None:
    assert _returned(STEP) == ["input_gradient/a", "input_gradient/b"]


@pytest.mark.parametrize("outputs", [GRADIENTS[:1], (*GRADIENTS, Column("more", (4,)))])
def test_a_plan_that_asks_for_something_else_is_refused(outputs: tuple[Column, ...]) -> None:
    with pytest.raises(EngineError, match=r"stage0 \(backward\).*input_gradient/a, input_gradient/b"):
        _returned(replace(STEP, outputs=outputs))
