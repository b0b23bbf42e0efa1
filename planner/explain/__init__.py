"""What will run and why: as text, as data, and as pictures.

`text`, `rules` and `places` have the words and the plain data; `diagram` makes boxes and arrows of the data, which `mermaid`
writes down and `layout`, `arrows` and `svg` draw for a `page`; `comparison` sets two plans side by side; `formats` has the doors.
"""

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
    "check_form",
    "compare",
    "duration",
    "explain",
    "head_text",
    "own_line",
    "passes",
    "size",
]
