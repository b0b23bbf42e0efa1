"""The tables that the documentation takes from the planner: rules from planner/rules, units of work from planner/cost.

`tools/build_docs.py` puts them into the pages, so they are never out of date.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.rule import Rule

ROOT = Path(__file__).resolve().parents[1]
COUNTED = ("steps/*.py", "cost/stages.py")  # where one counts as several
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
    cells = [f"`{name}`", does, because, "yes" if rule.in_general_plan else "no"]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _paragraph(docstring: str | None) -> str:
    return " ".join(inspect.cleandoc(docstring or "").split("\n\n")[0].split())


def units() -> str:
    """A row for each unit of work, with what one takes by default on each engine."""
    from planner.rates import DEFAULT_RATES
    from planner.work import GROUPS

    source = (ROOT / "planner" / "work.py").read_text()
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
    files = [path for pattern in COUNTED for path in sorted((ROOT / "planner").glob(pattern))]
    found = [row for path in files for row in TIMES.findall(path.read_text())]
    return "\n".join(
        ["| constant | | |", "|---|---|---|", *(f"| `{name}` | {value} | {words} |" for name, value, words in found)]
    )
