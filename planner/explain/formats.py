"""The forms in which a plan can be shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Literal, get_args

from planner.compiler import Planned
from planner.errors import PlanError
from planner.explain.comparison import Named, compare_html, compare_json, compare_mermaid, compare_text
from planner.explain.diagram import diagrams
from planner.explain.mermaid import mermaid
from planner.explain.page import page
from planner.explain.rules import ablations
from planner.explain.text import Measured, PlanStage, as_data, as_text, graphs_data

Format = Literal["text", "json", "mermaid", "html"]
FORMATS: tuple[Format, ...] = get_args(Format)
STAGES: tuple[PlanStage, ...] = get_args(PlanStage)


def explain(
    planned: Planned,
    format: Format = "text",
    stage: PlanStage = "all",
    measured: Measured | None = None,
    below: str = "",
) -> str:
    """Show what will run and why.

    Args:
        planned: The result of `compile_plan`.
        format: "text"; "json" for the same as data; "mermaid" for a flowchart; "html" for a page that needs no other
            files.
        stage: "logical", "rewritten", "physical" or "all".
        measured: Measured figures of the passes, which "json" and "html" show beside the estimates.
        below: HTML of more sections, which "html" shows below the pictures.

    Raises:
        PlanError: If the format or the stage is unknown.
    """
    check_form(format, stage)
    return _EXPLAIN[format](planned, stage, measured, below)


def compare(
    a: Planned, b: Planned, names: tuple[str, str] = ("A", "B"), format: Format = "text", stage: PlanStage = "all"
) -> str:
    """Show what two plans have in common, and what not.

    Args:
        a: The first plan.
        b: The second plan.
        names: The names of the two plans.
        format: The form of the result, as in `explain`.
        stage: The part of the plans, as in `explain`.

    Raises:
        PlanError: If the format or the stage is unknown.
    """
    check_form(format, stage)
    return _COMPARE[format](Named(names[0], a), Named(names[1], b), stage)


def check_form(format: str, stage: str) -> None:
    """Check that a plan can be shown in a format and a stage.

    Raises:
        PlanError: If the format or the stage is unknown.
    """
    if stage not in STAGES:
        raise PlanError(f"there is no stage {stage!r} of a plan; expected one of {', '.join(STAGES)}")
    if format not in FORMATS:
        raise PlanError(f"explain knows no format {format!r}; expected one of {', '.join(FORMATS)}")


def _text(planned: Planned, stage: PlanStage, measured: Measured | None, below: str) -> str:
    return as_text(planned, stage)


def _json(planned: Planned, stage: PlanStage, measured: Measured | None, below: str) -> str:
    return json.dumps(as_data(planned, stage, measured=measured), indent=2)


def _mermaid(planned: Planned, stage: PlanStage, measured: Measured | None, below: str) -> str:
    return mermaid(diagrams(graphs_data(planned, stage)))


def _html(planned: Planned, stage: PlanStage, measured: Measured | None, below: str) -> str:
    less = ablations(planned)
    data = as_data(planned, stage, less, measured)
    others = {rule: diagrams(graphs_data(plan, stage)) for rule, plan in less.items()}
    return page(data, planned.options.traits, diagrams(data), others, below)


_EXPLAIN: dict[Format, Callable[[Planned, PlanStage, Measured | None, str], str]] = {
    "text": _text,
    "json": _json,
    "mermaid": _mermaid,
    "html": _html,
}
_COMPARE: dict[Format, Callable[[Named, Named, PlanStage], str]] = {
    "text": compare_text,
    "json": compare_json,
    "mermaid": compare_mermaid,
    "html": compare_html,
}
