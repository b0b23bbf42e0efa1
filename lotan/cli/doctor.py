"""`lotan doctor`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from planner.cost import UNITS

if TYPE_CHECKING:
    from lotan.cli.checks import Finding
    from planner.cost import Rates

MARKS = {"ok": "ok", "warning": "WARNING", "error": "ERROR"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The form of the answer."""
    parser.add_argument("--json", action="store_true", help="print a list of findings as JSON instead of a table")
    parser.add_argument(
        "--calibrate",
        nargs="*",
        choices=("local", "blocks", "rows"),
        metavar="ENGINE",
        help="instead, measure what training takes on this machine, for the Planner's estimates: on local (some seconds),\n"
        "blocks, rows (a minute each); without a name, on local, and on blocks where the jar is",
    )


def run(options: argparse.Namespace) -> int:
    """Print what was found; 1 where training cannot run."""
    if options.calibrate is not None:
        return calibrate(options.calibrate)
    from lotan.cli.checks import can_train, examine

    findings = examine()
    print(json.dumps([asdict(one) for one in findings], indent=2) if options.json else table(findings))
    return 0 if can_train(findings) else 1


def calibrate(engines: list[str]) -> int:
    """Measure rates, remember them, and say which; 1, without measuring, where they cannot be remembered."""
    from lotan.exploring import calibration
    from lotan.hosts.jar import JAR
    from lotan.planning import cost_cache

    if obstacle := cost_cache.obstacle():
        print(f"nothing is measured, for it could not be remembered: {obstacle}. Name another folder in $LOTAN_COSTS.")
        return 1
    rates = {name: calibration.calibrate(name) for name in engines or ("local", *["blocks"] * JAR.is_file())}
    print("\n".join(rate_lines(rates)))
    place = cost_cache.remember_rates(rates)
    print(f"in {place}" if place else f"not remembered: {cost_cache.obstacle() or 'it could not be written'}")
    return 0 if place else 1


def rate_lines(rates: dict[str, Rates]) -> list[str]:
    """Seconds a unit, by engine."""
    units = [unit for unit in UNITS if any(getattr(of, unit) for of in rates.values())]
    heads = f"{'seconds a unit of':<20}" + "".join(f"{name:>12}" for name in rates)
    return [heads, *(f"{unit:<20}" + "".join(f"{getattr(of, unit):>12.3g}" for of in rates.values()) for unit in units)]


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
