"""A plan in words: a tree of operators for the logical and the rewritten graph, a list of steps for the physical plan.

Text fits 100 columns and is deterministic: golden files hold it. The same facts as plain data are the JSON form.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any, Literal

from planner.compiler import Planned
from planner.errors import PlanError
from planner.estimate import step_bytes, step_rows
from planner.expressions import text
from planner.footprint import local_bytes
from planner.nodes import Node, topological
from planner.physical import (
    CollectStep,
    EdgeDropoutStep,
    EdgeExpressionStep,
    EdgeStep,
    EdgeSumStep,
    ExtremeGradientStep,
    ExtremeStep,
    GatherStep,
    PipeStep,
    PropagateStep,
    ScaledPropagateStep,
    Stage,
    Step,
)
from planner.printer import WIDTH, aligned, engine, has_line, label, row_inputs, tree, wrapped
from planner.rules import GENERAL_PLAN_WITHOUT, IDLE, RULES
from planner.spec import Call

Format = Literal["text", "json"]
PlanStage = Literal["all", "logical", "rewritten", "physical"]
STAGES = ("all", "logical", "rewritten", "physical")


def explain(planned: Planned, format: Format = "text", stage: PlanStage = "all") -> str:
    """Say what will run and why.

    Args:
        planned: what `compile_plan` returned.
        format: "text" or "json".
        stage: "logical", "rewritten", "physical" or "all".

    Raises:
        PlanError: an unknown format or stage.
    """
    if stage not in STAGES:
        raise PlanError(f"there is no stage {stage!r} of a plan; expected one of {', '.join(STAGES)}")
    if format == "json":
        return json.dumps(as_data(planned, stage), indent=2)
    if format != "text":
        raise PlanError(f"explain knows no format {format!r}; expected 'text' or 'json'")
    sections = [_head(planned)]
    if stage in ("all", "logical"):
        sections.append(_section("logical", tree(planned.logical)))
    if stage in ("all", "rewritten"):
        sections.append(_section("rewritten", tree(planned.rewritten.root)))
        sections.append(_section("rules", rule_lines(planned)))
    if stage in ("all", "physical"):
        sections.append(_section("physical: one epoch", step_lines(planned, planned.plan.train)))
        sections.append(_section("physical: evaluation", step_lines(planned, planned.plan.evaluate)))
    return "\n".join(sections)


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"== {title} ==", *lines, ""])


def _head(planned: Planned) -> str:
    statistics, options = planned.statistics, planned.options
    graph = f"{statistics.vertices:,} vertices, {statistics.edges:,} edges, {statistics.width:,} features"
    reason = f" ({options.engine_reason})" if options.engine_reason else ""
    memory = options.memory or f"{size(local_bytes(planned.plan, statistics))} estimated for the local engine"
    lines = [
        f"Graph   {graph}",
        f"Engine  {options.engine}{reason}",
        f"Memory  {memory}",
        "",
    ]
    return "\n".join(lines)


# --- rules ----------------------------------------------------------------------------------------------------------


def rule_lines(planned: Planned) -> list[str]:
    """For every rule: how often it fired and where, or what stopped it."""
    lines: list[str] = []
    for fact in rule_facts(planned):
        state = "off" if not fact["enabled"] else f"fired {fact['fired']}x" if fact["fired"] else "did not fire"
        where = f": {', '.join(fact['where'])}" if fact["where"] else ""
        lines.append(f"{fact['name']:<22}{state}{where}"[:WIDTH])
        lines += [piece for reason in fact["declined"] for piece in _wrapped(reason)]
    return lines


def _wrapped(reason: str) -> list[str]:
    return textwrap.wrap(reason, WIDTH - 4, initial_indent="  - ", subsequent_indent="    ")


def rule_facts(planned: Planned) -> list[dict[str, Any]]:
    """Every rule as plain data, in the order of RULES."""
    off = set(planned.options.disabled) | set(GENERAL_PLAN_WITHOUT if planned.options.plan == "general" else ())
    return [_rule_fact(planned, name, name not in off) for name in RULES]


def _rule_fact(planned: Planned, name: str, enabled: bool) -> dict[str, Any]:
    fired = planned.firings[name]
    layers = (getattr(firing.before, "layer", "") for firing in planned.rewritten.firings if firing.rule == name)
    declined = [entry.reason for entry in planned.rewritten.declined if entry.rule == name]
    return {
        "name": name,
        "enabled": enabled,
        "fired": fired,
        "where": [layer for layer in dict.fromkeys(layers) if layer],
        "declined": declined or [IDLE[name]] if enabled and not fired else declined,
    }


# --- steps ----------------------------------------------------------------------------------------------------------


def step_lines(planned: Planned, steps: Sequence[Step]) -> list[str]:
    """The steps in order, each with its engine, rows and bytes; below a pipe, the calls of its stage."""
    lines = []
    for number, step in enumerate(steps):
        rows, moved = step_rows(step, planned.statistics), step_bytes(step, planned.statistics, planned.plan)
        where = "dl" if isinstance(step, PipeStep) else "graph"
        lines += aligned(f"{number:>2} {step_label(step)}", where, f"{rows:>11,} rows", f"{size(moved):>8}")
        if isinstance(step, PipeStep) and step.mode != "backward":
            lines += [
                line
                for call in planned.plan.stage(step.stage).calls
                for line in wrapped("     " + call_label(call), WIDTH)
            ]
    return lines


def step_label(step: Step) -> str:
    """One step in words."""
    match step:
        case PipeStep():
            return f"Pipe({step.stage}, {step.mode}) -> {_yielded(step)}"
        case PropagateStep():
            flags = ["reverse"] * step.reverse + ["weighted"] * step.weighted + ["naive"] * (not step.combine)
            return f"Propagate({', '.join([step.input, step.edges, *flags])}) -> {step.output.name}"
        case CollectStep():
            return f"Collect({', '.join([*step.columns, step.edges])}) -> neighbourhoods"
        case GatherStep():
            return f"Gather({step.contributions}{'' if step.combine else ', naive'}) -> {step.output.name}"
        case EdgeStep():
            return _edge_step_label(step)


def _edge_step_label(step: EdgeStep) -> str:
    match step:
        case EdgeExpressionStep():
            what = text(step.expression)
        case EdgeDropoutStep():
            what = f"{step.input}, p={step.p:g}"
        case EdgeSumStep():
            what = f"{step.input}, by {step.end}"
        case ScaledPropagateStep():
            what = ", ".join([*step.columns, *["reverse"] * step.reverse])
        case ExtremeStep() | ExtremeGradientStep():
            what = ", ".join([step.kind, *step.columns])
        case _:
            what = ", ".join(step.columns)
    return f"{type(step).__name__.removesuffix('Step')}({what}, {step.edges}) -> {step.output.name}"


def _yielded(step: PipeStep) -> str:
    aside = {"turn": ["loss"], "evaluate": ["metrics"], "backward": [] if step.outputs else ["parameters only"]}
    return ", ".join([*aside.get(step.mode, []), *(column.name for column in step.outputs)])


def call_label(call: Call) -> str:
    """`name = operator(inputs)` of one call of a stage."""
    operator = call.op.removeprefix("aten.").removeprefix("lotan.").removesuffix(".default")
    inputs = [ref.name for ref in call.references]
    return f"{call.output} = {operator}({', '.join(inputs)})"


def size(count: int) -> str:
    """Bytes for people.

    >>> size(512), size(2_500_000)
    ('512 B', '2.5 MB')
    """
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


# --- data -----------------------------------------------------------------------------------------------------------


def as_data(planned: Planned, stage: PlanStage = "all") -> dict[str, Any]:
    """The plan as plain data for JSON."""
    statistics, options, plan = planned.statistics, planned.options, planned.plan
    data: dict[str, Any] = {
        "graph": {"vertices": statistics.vertices, "edges": statistics.edges, "width": statistics.width},
        "engine": options.engine,
        "engine_reason": options.engine_reason,
        "estimated_peak_bytes_local": local_bytes(plan, statistics),
        "memory": options.memory,
        "rules": rule_facts(planned),
    }
    if stage in ("all", "logical"):
        data["logical"] = _graph_data(planned.logical)
    if stage in ("all", "rewritten"):
        data["rewritten"] = _graph_data(planned.rewritten.root)
    if stage in ("all", "physical"):
        data["stages"] = [_stage_data(value) for value in plan.stages]
        data["epoch"] = [_step_data(planned, step) for step in plan.train]
        data["evaluation"] = [_step_data(planned, step) for step in plan.evaluate]
    return data


def _graph_data(root: Node) -> list[dict[str, Any]]:
    order = [node for node in topological(root) if has_line(node)]
    number = {node: index for index, node in enumerate(order)}
    return [
        {"id": number[node], "operator": label(node), "engine": engine(node), "rows": node.output.rows,
         "shape": list(node.output.shape), "inputs": [number[child] for child in row_inputs(node)]}
        for node in order
    ]  # fmt: skip


def _stage_data(stage: Stage) -> dict[str, Any]:
    return {"name": stage.name, "inputs": [value.column for value in stage.inputs],
            "parameters": [parameter.name for parameter in stage.parameters],
            "calls": [call_label(call) for call in stage.calls]}  # fmt: skip


def _step_data(planned: Planned, step: Step) -> dict[str, Any]:
    return {"operator": step_label(step), "engine": "dl" if isinstance(step, PipeStep) else "graph",
            "rows": step_rows(step, planned.statistics),
            "bytes": step_bytes(step, planned.statistics, planned.plan)}  # fmt: skip
