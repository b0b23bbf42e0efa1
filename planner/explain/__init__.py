"""Shows what will run and why: as text, as data, and as pictures.

- `text`, `rules` and `places` write the words and the plain data. `brief` writes the most important of them in at most
  40 lines.
- `diagram` makes boxes and arrows of the data. `mermaid` writes them as text, and `layout`, `arrows` and `svg` draw
  them for a `page`.
- `comparison` sets two plans side by side.
- `formats` has the functions for callers.
"""

from planner.explain.brief import brief_text, evaluation_text, rules_line
from planner.explain.formats import FORMATS, STAGES, Format, check_form, compare, explain
from planner.explain.sizes import duration, size
from planner.explain.text import Measured, PlanStage, as_data, head_text, own_line, passes
from planner.explain.view import DiffView, PlanView

__all__ = [
    "FORMATS",
    "STAGES",
    "DiffView",
    "Format",
    "Measured",
    "PlanStage",
    "PlanView",
    "as_data",
    "brief_text",
    "check_form",
    "compare",
    "duration",
    "evaluation_text",
    "explain",
    "head_text",
    "own_line",
    "passes",
    "rules_line",
    "size",
]
