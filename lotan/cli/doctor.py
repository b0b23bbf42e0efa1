"""`lotan doctor`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lotan.doctor import Finding

MARKS = {"ok": "ok", "warning": "WARNING", "error": "ERROR"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The form of the answer."""
    parser.add_argument("--json", action="store_true", help="print a list of findings as JSON instead of a table")


def run(options: argparse.Namespace) -> int:
    """Print what was found; 1 where training cannot run."""
    from lotan.doctor import can_train, examine

    findings = examine()
    print(json.dumps([asdict(one) for one in findings], indent=2) if options.json else table(findings))
    return 0 if can_train(findings) else 1


def table(findings: list[Finding]) -> str:
    """One finding a line, what to do below it, a verdict at the end."""
    lines = []
    for one in findings:
        expected = f"  (expected: {one.expected})" if one.expected and one.status != "ok" else ""
        lines.append(f"{MARKS[one.status]:<9}{one.name:<18}{one.found}{expected}")
        if one.mend:
            lines.append(f"{'':<27}-> {one.mend}")
    errors = sum(one.status == "error" for one in findings)
    warnings = sum(one.status == "warning" for one in findings)
    verdict = "Training cannot run here until what is marked ERROR is mended." if errors else "Training can run."
    return "\n".join([*lines, "", f"{_count(errors, 'error')}, {_count(warnings, 'warning')}. {verdict}"])


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
