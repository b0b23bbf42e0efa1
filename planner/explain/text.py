"""A plan in words: a tree of operators for the logical and the rewritten graph, a list of steps for the physical plan.

Text fits 100 columns and is deterministic: golden files hold it. The same facts as plain data are the JSON form.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from planner.compiler import Planned
from planner.estimate import columns_bytes, node_bytes, step_bytes, step_rows
from planner.expressions import text
from planner.footprint import local_bytes
from planner.nodes import EdgeWeight, Node, StaticColumn, topological
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
    Plan,
    PropagateStep,
    ScaledPropagateStep,
    Stage,
    Step,
    makes,
    reads,
)
from planner.printer import WIDTH, aligned, engine, has_line, label, row_inputs, tree, wrapped
from planner.rules import GENERAL_PLAN_WITHOUT, IDLE, RULES
from planner.spec import Call, Statistics

PlanStage = Literal["all", "logical", "rewritten", "physical"]
STAGES = ("all", "logical", "rewritten", "physical")
PASSES = {"once": "once, before the first epoch", "epoch": "one epoch", "evaluation": "evaluation"}
"""The walks over steps that a plan has, by the name of their data, and what they are called."""


def as_text(planned: Planned, stage: PlanStage = "all") -> str:
    """The plan, or one stage of it, in lines of at most 100 columns."""
    sections = [_head(planned)]
    if stage in ("all", "logical"):
        sections.append(_section("logical", tree(planned.logical)))
    if stage in ("all", "rewritten"):
        sections.append(_section("rewritten", tree(planned.rewritten.root)))
        sections.append(_section("rules", rule_lines(planned)))
    if stage in ("all", "physical"):
        for name, steps in passes(planned.plan).items():
            if steps:
                sections.append(_section(f"physical: {PASSES[name]}", step_lines(planned, steps)))
    return "\n".join(sections)


def passes(plan: Plan) -> dict[str, tuple[Step, ...]]:
    """The walks over steps that explain shows, in order; see PASSES."""
    return {"once": plan.prepare, "epoch": plan.train, "evaluation": plan.evaluate}


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
        data["logical"] = _graph_data(planned.logical, statistics)
    if stage in ("all", "rewritten"):
        data["rewritten"] = _graph_data(planned.rewritten.root, statistics)
    if stage in ("all", "physical"):
        sizes = columns_bytes(plan, statistics)
        data["stages"] = [_stage_data(value) for value in plan.stages]
        data["passes"] = PASSES
        for name, steps in passes(plan).items():
            turn = [isinstance(step, PipeStep) and step.mode == "turn" for step in steps]
            data[name] = [_step_data(planned, step, sizes) | {"turn": turn[at], "backward": any(turn[:at])}
                          for at, step in enumerate(steps)]  # fmt: skip
    return data


def _graph_data(root: Node, statistics: Statistics) -> list[dict[str, Any]]:
    order = [node for node in topological(root) if has_line(node)]
    number = {node: index for index, node in enumerate(order)}
    return [
        {"id": number[node], "operator": label(node), "engine": engine(node), "rows": node.output.rows,
         "shape": list(node.output.shape), "bytes": node_bytes(node.output, statistics),
         "static": isinstance(node, (StaticColumn, EdgeWeight)), "layer": getattr(node, "layer", ""),
         "inputs": [number[child] for child in row_inputs(node)]}
        for node in order
    ]  # fmt: skip


def _stage_data(stage: Stage) -> dict[str, Any]:
    return {"name": stage.name, "inputs": [value.column for value in stage.inputs],
            "parameters": [parameter.name for parameter in stage.parameters],
            "calls": [call_label(call) for call in stage.calls]}  # fmt: skip


def _step_data(planned: Planned, step: Step, sizes: Mapping[str, int]) -> dict[str, Any]:
    return {"operator": step_label(step), "engine": "dl" if isinstance(step, PipeStep) else "graph",
            "stage": step.stage if isinstance(step, PipeStep) else None,
            "rows": step_rows(step, planned.statistics),
            "bytes": step_bytes(step, planned.statistics, planned.plan),
            "reads": {name: sizes[name] for name in reads(step)},
            "makes": {name: sizes[name] for name in makes(step)}}  # fmt: skip
