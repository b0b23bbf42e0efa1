"""The forms in which a plan is shown."""

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
    planned: Planned, format: Format = "text", stage: PlanStage = "all", measured: Measured | None = None
) -> str:
    """Say what will run and why.

    Args:
        planned: what `compile_plan` returned.
        format: "text"; "json", the same as data; "mermaid", a flowchart; "html", a page that needs nothing else.
        stage: "logical", "rewritten", "physical" or "all".
        measured: what passes came to, to be set beside the estimates of "json" and "html".

    Raises:
        PlanError: an unknown format or stage.
    """
    check_form(format, stage)
    return _EXPLAIN[format](planned, stage, measured)


def compare(
    a: Planned, b: Planned, names: tuple[str, str] = ("A", "B"), format: Format = "text", stage: PlanStage = "all"
) -> str:
    """Say what two plans have in common and what not.

    Args:
        a: a plan.
        b: the one to set beside it.
        names: what they are called.
        format: as of `explain`.
        stage: as of `explain`.

    Raises:
        PlanError: an unknown format or stage.
    """
    check_form(format, stage)
    return _COMPARE[format](Named(names[0], a), Named(names[1], b), stage)


def check_form(format: str, stage: str) -> None:
    """Refuse what no plan is shown in.

    Raises:
        PlanError: an unknown format or stage.
    """
    if stage not in STAGES:
        raise PlanError(f"there is no stage {stage!r} of a plan; expected one of {', '.join(STAGES)}")
    if format not in FORMATS:
        raise PlanError(f"explain knows no format {format!r}; expected one of {', '.join(FORMATS)}")


def _text(planned: Planned, stage: PlanStage, measured: Measured | None) -> str:
    return as_text(planned, stage)


def _json(planned: Planned, stage: PlanStage, measured: Measured | None) -> str:
    return json.dumps(as_data(planned, stage, measured=measured), indent=2)


def _mermaid(planned: Planned, stage: PlanStage, measured: Measured | None) -> str:
    return mermaid(diagrams(graphs_data(planned, stage)))


def _html(planned: Planned, stage: PlanStage, measured: Measured | None) -> str:
    less = ablations(planned)
    data = as_data(planned, stage, less, measured)
    others = {rule: diagrams(graphs_data(plan, stage)) for rule, plan in less.items()}
    return page(data, planned.options.traits, diagrams(data), others)


_EXPLAIN: dict[Format, Callable[[Planned, PlanStage, Measured | None], str]] = {
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
