"""Writes the tables in docs/planner.md: of rules, from the docstrings of planner/rules; of work, from planner/cost.

python tools/planner_tables.py            after a rule, its docstring or its place in RULES, or work and its rates have changed
"""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.rule import Rule

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "planner.md"
COUNTED = ("counting.py", "stages.py")  # where one counts as several
TIMES = re.compile(r"^([A-Z_]+) = ([\d.]+)  # (.*)$", re.MULTILINE)
UNIT = re.compile(r"^    (\w+): float = 0\.0  # (.*)$", re.MULTILINE)


def rules() -> str:
    """A row for each rule, in the order of RULES."""
    from planner.rules import RULES

    rows = [_row(rule) for rule in RULES]
    return "\n".join(["| rule | what it does | because | in the general plan |", "|---|---|---|---|", *rows])


def _row(rule: Rule) -> str:
    name, module = rule.name, import_module(rule.apply.__module__)
    does = _paragraph(module.__doc__).rstrip(".")
    because = _paragraph(getattr(module, name).__doc__).rstrip(".")
    cells = [
        f"[`{name}`](../{module.__name__.replace('.', '/')}.py)",
        does,
        because,
        "yes" if rule.in_general_plan else "no",
    ]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _paragraph(docstring: str | None) -> str:
    return " ".join(inspect.cleandoc(docstring or "").split("\n\n")[0].split())


def units() -> str:
    """A row for each unit of work, with what one takes by default on each engine."""
    from planner.cost import DEFAULT_RATES, GROUPS

    source = (ROOT / "planner" / "cost" / "work.py").read_text()
    groups = {unit: group for group, units in GROUPS.items() for unit in units}
    head = f"| unit | of which part | counts | {' | '.join(DEFAULT_RATES)} |\n|{'---|' * (3 + len(DEFAULT_RATES))}"
    rows = [
        f"| `{unit}` | {groups[unit]} | {counts} | "
        + " | ".join(f"{getattr(rates, unit):.2g}" for rates in DEFAULT_RATES.values())
        + " |"
        for unit, counts in UNIT.findall(source)
    ]
    return "\n".join([head, *rows])


def times() -> str:
    """A row for each number that work is counted so many times by."""
    found = [row for name in COUNTED for row in TIMES.findall((ROOT / "planner" / "cost" / name).read_text())]
    return "\n".join(
        ["| constant | | |", "|---|---|---|", *(f"| `{name}` | {value} | {words} |" for name, value, words in found)]
    )


def updated(page: str) -> str:
    """The page with its tables as they should be."""
    for name, table in (("rules", rules), ("units", units), ("times", times)):
        begin, end = f"<!-- {name}: written by tools/planner_tables.py -->", f"<!-- end of {name} -->"
        before, rest = page.split(begin)
        page = f"{before}{begin}\n{table()}\n{end}{rest.split(end)[1]}"
    return page


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(updated(PAGE.read_text()))
