"""Plans that display themselves: as a page in a notebook, and as text elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from planner.compiler import Planned
from planner.explain.brief import brief_text
from planner.explain.formats import Format, compare, explain
from planner.explain.text import PlanStage
from planner.plan_names import plan_name

HEIGHT = 760  # height of a page in a notebook, in pixels


class PlanView:
    """A plan that displays itself in a notebook and in a terminal.

    Args:
        planned: The result of `compile_plan`.
        below: A function to the HTML of more sections, which a page shows below the plan.
    """

    def __init__(self, planned: Planned, below: Callable[[], str] = str) -> None:
        self.planned, self._below = planned, below

    def __repr__(self) -> str:
        return self.explain()

    def _repr_html_(self) -> str:
        return framed(self.explain("html"))

    def explain(self, format: Format = "text", stage: PlanStage | None = None) -> str:
        """Return the plan as `planner.explain.formats.explain` does.

        Without a stage, the text is the brief form, and other formats show the whole plan.
        """
        if format == "text" and stage is None:
            return brief_text(self.planned)
        return explain(self.planned, format, stage or "all", below=self._below() if format == "html" else "")

    def diff(self, other: PlanView, names: tuple[str, str] | None = None) -> DiffView:
        """Return this plan and another side by side.

        Args:
            other: The other plan.
            names: The names of both plans; None: an engine and the rules left out, for each.
        """
        return DiffView(self.planned, other.planned, names or _names(self.planned, other.planned))


class DiffView:
    """Two plans side by side that display themselves in a notebook and in a terminal."""

    def __init__(self, a: Planned, b: Planned, names: tuple[str, str]) -> None:
        self.plans, self.names = (a, b), names

    def __repr__(self) -> str:
        return self.explain()

    def _repr_html_(self) -> str:
        return framed(self.explain("html"))

    def explain(self, format: Format = "text", stage: PlanStage = "all") -> str:
        """Return both plans as `planner.explain.formats.compare` does."""
        return compare(*self.plans, self.names, format, stage)


def _names(a: Planned, b: Planned) -> tuple[str, str]:
    one, other = (plan_name(each.options.traits.name, each.options.disabled, each.options.plan) for each in (a, b))
    return (one, other) if one != other else (f"this plan, {one}", f"the other, {other}")


def framed(page: str, title: str = "plan") -> str:
    """Return a page in a frame of its own, so that its style and script and those around it do not affect one another."""
    style = f"width: 100%; height: {HEIGHT}px; border: 0"
    return f'<iframe title="{escape(title)}" sandbox="allow-scripts" style="{style}" srcdoc="{escape(page)}"></iframe>'
