"""Writes the table of rules in docs/planner.md from the docstrings of planner/rules.

python tools/rule_table.py            after a rule, its docstring or its place in RULES has changed
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "planner.md"
BEGIN, END = "<!-- rules: written by tools/rule_table.py -->", "<!-- end of rules -->"


def table() -> str:
    """A row for each rule, in the order of RULES."""
    from planner.rules import GENERAL_PLAN_WITHOUT, RULES

    rows = [_row(name, name in GENERAL_PLAN_WITHOUT) for name in RULES]
    return "\n".join(["| rule | what it does | because | in the general plan |", "|---|---|---|---|", *rows])


def _row(name: str, left_out: bool) -> str:
    module = import_module(f"planner.rules.{name}")
    does = _paragraph(module.__doc__).removeprefix("Rule: ").rstrip(".")
    because = _paragraph(getattr(module, name).__doc__).rstrip(".")
    cells = [f"[`{name}`](../planner/rules/{name}.py)", does, because, "no" if left_out else "yes"]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _paragraph(docstring: str | None) -> str:
    return " ".join(inspect.cleandoc(docstring or "").split("\n\n")[0].split())


def updated(page: str) -> str:
    """The page with the table as it should be."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(updated(PAGE.read_text()))
