"""What will run and why: as text, as data, and as pictures.

`text` has the words and the plain data; `diagram` makes boxes and arrows of that data, which `mermaid` and `page` draw.
"""

from __future__ import annotations

import json
from typing import Literal

from planner.compiler import Planned
from planner.errors import PlanError
from planner.explain.diagram import diagrams
from planner.explain.mermaid import mermaid
from planner.explain.text import STAGES, PlanStage, as_data, as_text, size, step_label

__all__ = ["FORMATS", "STAGES", "Format", "PlanStage", "as_data", "explain", "size", "step_label"]

Format = Literal["text", "json", "mermaid"]
FORMATS = ("text", "json", "mermaid")


def explain(planned: Planned, format: Format = "text", stage: PlanStage = "all") -> str:
    """Say what will run and why.

    Args:
        planned: what `compile_plan` returned.
        format: "text"; "json", the same as data; "mermaid", a flowchart.
        stage: "logical", "rewritten", "physical" or "all".

    Raises:
        PlanError: an unknown format or stage.
    """
    if stage not in STAGES:
        raise PlanError(f"there is no stage {stage!r} of a plan; expected one of {', '.join(STAGES)}")
    match format:
        case "text":
            return as_text(planned, stage)
        case "json":
            return json.dumps(as_data(planned, stage), indent=2)
        case "mermaid":
            return mermaid(diagrams(as_data(planned, stage)))
    raise PlanError(f"explain knows no format {format!r}; expected one of {', '.join(FORMATS)}")
