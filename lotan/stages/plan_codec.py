"""The plan of a mini-batch as plain data for the wire. A worker runs it as a whole; of other plans it has stages alone.

Steps are encoded field by field, and decoded by the types of the fields. A worker trusts no data that it reads.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from lotan.errors import StageError
from lotan.stages.codec import Plain, decode_stage, encode_stage
from lotan.stages.fields import Reader, one_of, size_of
from planner.edge_sets import is_edge_set
from planner.expressions import OPERATIONS, ROWS
from planner.physical import Column, Plan, SourceGradients
from planner.spec import Targets
from planner.steps.collect import CollectStep, GatherStep
from planner.steps.edge_dropout import EdgeDropoutStep
from planner.steps.edge_expression import EdgeExpressionStep
from planner.steps.edge_sum import EdgeSumStep
from planner.steps.extreme import ExtremeGradientStep, ExtremeStep
from planner.steps.learned_rows import LearnedRowsGradientStep, LearnedRowsStep
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.scaled_propagate import EdgeDotStep, ScaledPropagateStep
from planner.steps.score import ScoreStep
from planner.steps.segment_softmax import SegmentSoftmaxGradientStep, SegmentSoftmaxStep
from planner.steps.step import Step
from planner.steps.total import TotalGradientStep, TotalStep

STEPS: tuple[type[Step], ...] = (
    CollectStep,
    EdgeDotStep,
    EdgeDropoutStep,
    EdgeExpressionStep,
    EdgeSumStep,
    ExtremeGradientStep,
    ExtremeStep,
    GatherStep,
    LearnedRowsGradientStep,
    LearnedRowsStep,
    PipeStep,
    PropagateStep,
    ScaledPropagateStep,
    ScoreStep,
    SegmentSoftmaxGradientStep,
    SegmentSoftmaxStep,
    TotalGradientStep,
    TotalStep,
)
"""The steps that the plan of a mini-batch may have. Totals are over the vertices of the batch."""

_BY_NAME = {kind.__name__: kind for kind in STEPS}
_EXPRESSION = "expression"  # the field of a step that is a nested tuple
_DEPTH = 64  # the deepest expression


def encode_plan(plan: Plan) -> Plain:
    """Return the training pass of a plan as data for msgpack, with all that it needs. `decode_plan` is the inverse.

    Columns that the plan computes once are static there, because a batch comes with them.

    Raises:
        StageError: If a step is none of `STEPS`.
    """
    prepared = {step.stage for step in plan.prepare if isinstance(step, PipeStep)}
    only_prepared = {column.name for column in plan.static_columns} - plan.lasting if plan.prepare else set()
    kept = [column for column in (*plan.static_columns, *plan.hoisted) if column.name not in only_prepared]
    return {
        "stages": [encode_stage(stage) for stage in plan.stages if stage.name not in prepared],
        "train": [_encode_step(step) for step in plan.train],
        "static_columns": [_encode(column) for column in kept],
        "trainable": list(plan.trainable),
        "source_gradients": plan.source_gradients,
        "levels": plan.levels,
        "targets": plan.targets,
        "models": plan.models,
    }


def _encode_step(step: Step) -> Plain:
    if type(step) not in STEPS:
        raise StageError(f"a mini-batch has the step {step.label}, which no worker runs: train it on engine local")
    return {"step": type(step).__name__, "fields": _encode(step)}


def _encode(value: Any) -> Any:
    if is_dataclass(value):
        return {one.name: _encode(getattr(value, one.name)) for one in fields(value)}
    return [_encode(part) for part in value] if isinstance(value, tuple) else value


def decode_plan(data: Any) -> Plan:
    """Return the plan that `encode_plan` wrote. It trains and does nothing else.

    Raises:
        StageError: If a field is missing, unknown or of a wrong type, or a stage cannot run.
    """
    read = Reader(data, "plan")
    plan = Plan(
        stages=read.items("stages", decode_stage),
        train=read.items("train", _decode_step),
        evaluate=(),
        predict=(),
        static_columns=read.items("static_columns", lambda one: cast(Column, _decode_dataclass(Column, one))),
        trainable=read.items("trainable", _text),
        source_gradients=read.choice("source_gradients", get_args(SourceGradients)),
        levels=read.optional("levels", _deepest),
        targets=read.choice("targets", get_args(Targets)),
        models=size_of(read.field("models"), "plan"),
    )
    names = {stage.name for stage in plan.stages}
    for step in plan.train:
        if isinstance(step, PipeStep) and step.stage not in names:
            raise StageError(f"plan: there is no stage {step.stage!r}")
    return plan


def _decode_step(data: Any) -> Step:
    read = Reader(data, "step")
    kind = _BY_NAME[one_of(read.field("step"), tuple(_BY_NAME), "the kind of a step")]
    return cast(Step, _decode_dataclass(kind, read.field("fields")))


def _decode_dataclass(kind: type, data: Any) -> Any:
    read, hints = Reader(data, kind.__name__), _hints(kind)
    given = {}
    for one in fields(kind):
        what = f"{kind.__name__}: field {one.name!r}"
        if one.name == _EXPRESSION:
            given[one.name] = _expression(read.field(one.name), what)
        elif read.has(one.name) or one.default is MISSING:
            given[one.name] = _decoded(hints[one.name], read.field(one.name), what)
    if unknown := sorted(data.keys() - given.keys()):
        raise StageError(f"{kind.__name__}: has no field {unknown[0]!r}")
    if isinstance(given.get("edges"), str) and not is_edge_set(given["edges"]):
        raise StageError(f"{kind.__name__}: {given['edges']!r} is no edge set")
    return kind(**given)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _decoded(hint: Any, value: Any, what: str) -> Any:
    """Return a value of the type that a hint names, or raise a StageError."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        (inner,) = (one for one in arguments if one is not type(None))
        return None if value is None else _decoded(inner, value, what)
    if origin is Literal:
        return one_of(value, arguments, what)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_decoded(arguments[0], part, what) for part in value)
    if is_dataclass(hint):
        return _decode_dataclass(cast(type, hint), value)
    if type(value) is not hint:
        raise StageError(f"{what} is {value!r}, which is no {getattr(hint, '__name__', hint)}")
    return value


def _expression(data: Any, what: str, depth: int = 0) -> tuple[Any, ...]:
    """Return arithmetic on edges, see `planner.expressions`."""
    match list(data) if isinstance(data, list | tuple) and depth < _DEPTH else data:
        case ["weight"]:
            return ("weight",)
        case ["constant", int(number) | float(number)]:
            return ("constant", number)
        case [str(kind), str(column)] if kind in ROWS:
            return (kind, column)
        case [str(operation), *rest] if operation in OPERATIONS and len(rest) >= OPERATIONS[operation]:
            count = OPERATIONS[operation]
            if all(type(number) in (int, float) for number in rest[count:]):
                inner = (_expression(one, what, depth + 1) for one in rest[:count])
                return (operation, *inner, *rest[count:])
    raise StageError(f"{what} is {data!r:.200}, which is no arithmetic on edges")


def _deepest(value: Any) -> int:
    """Return the deepest level of a plan, which is -1 if it reads no neighbours."""
    return -1 if type(value) is int and value == -1 else size_of(value, "plan")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise StageError(f"plan: {value!r} is no name")
    return value
