"""Names of steps in Spark's UI."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from lotan.engines.action import name_operator

if TYPE_CHECKING:
    from lotan.engines.blocks.engine import BlocksEngine
    from planner.steps.step import Step

AnyStep = TypeVar("AnyStep", bound="Step")
More = ParamSpec("More")
Made = TypeVar("Made")

Method = Callable[Concatenate[Any, AnyStep, More], Made]


def named(method: Method[AnyStep, More, Made]) -> Method[AnyStep, More, Made]:
    """Let the RDDs that a step's method makes be named after the step, in the words of `explain`, until the pass ends."""

    @wraps(method)
    def run(engine: BlocksEngine, step: AnyStep, /, *more: More.args, **named: More.kwargs) -> Made:
        name_operator(engine.context, step.label)
        return method(engine, step, *more, **named)

    return run
