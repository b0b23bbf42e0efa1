"""The command `lotan doctor`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from planner.work import UNITS

if TYPE_CHECKING:
    from lotan.cli.checks import Finding
    from planner.rates import Rates

MARKS = {"ok": "ok", "warning": "WARNING", "error": "ERROR"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the form of the answer, and for calibration."""
    parser.add_argument("--json", action="store_true", help="print a list of findings as JSON instead of a table")
    parser.add_argument(
        "--calibrate",
        nargs="*",
        choices=("local", "blocks", "rows"),
        metavar="ENGINE",
        help="instead of the checks, measure the speed of training on this machine, for the Planner's estimates: on\n"
        "local (some seconds), blocks or rows (a minute each); without a name on local, and on blocks if its jar is there",
    )


def run(options: argparse.Namespace) -> int:
    """Print the findings. The exit status is 1 if training cannot run."""
    if options.calibrate is not None:
        return calibrate(options.calibrate)
    from lotan.cli.checks import can_train, examine

    findings = examine()
    print(json.dumps([asdict(one) for one in findings], indent=2) if options.json else table(findings))
    return 0 if can_train(findings) else 1


def calibrate(engines: list[str]) -> int:
    """Measure the rates of engines, store them and print them.

    Returns:
        The exit status: 1 if the rates cannot be stored. Without a place to store them, nothing is measured.
    """
    from lotan.exploring import calibration
    from lotan.hosts.jar import JAR
    from lotan.planning import cost_cache

    if obstacle := cost_cache.obstacle():
        print(f"nothing is measured, because it could not be stored: {obstacle}. Name another folder in $LOTAN_COSTS.")
        return 1
    rates = {name: calibration.calibrate(name) for name in engines or ("local", *["blocks"] * JAR.is_file())}
    print("\n".join(rate_lines(rates)))
    place = cost_cache.remember_rates(rates)
    print(f"stored in {place}" if place else f"not stored: {cost_cache.obstacle() or 'the file could not be written'}")
    return 0 if place else 1


def rate_lines(rates: dict[str, Rates]) -> list[str]:
    """Return a table of the seconds per unit of work, by engine."""
    units = [unit for unit in UNITS if any(getattr(of, unit) for of in rates.values())]
    heads = f"{'seconds a unit of':<20}" + "".join(f"{name:>12}" for name in rates)
    return [heads, *(f"{unit:<20}" + "".join(f"{getattr(of, unit):>12.3g}" for of in rates.values()) for unit in units)]


def table(findings: list[Finding]) -> str:
    """Return a table of the findings: one per line, the advice below it, and a verdict at the end."""
    lines = []
    for one in findings:
        expected = f"  (expected: {one.expected})" if one.expected and one.status != "ok" else ""
        lines.append(f"{MARKS[one.status]:<9}{one.name:<18}{one.found}{expected}")
        if one.mend:
            lines.append(f"{'':<27}-> {one.mend}")
    errors = sum(one.status == "error" for one in findings)
    warnings = sum(one.status == "warning" for one in findings)
    verdict = "Training cannot run here until the lines marked ERROR are mended." if errors else "Training can run."
    return "\n".join([*lines, "", f"{_count(errors, 'error')}, {_count(warnings, 'warning')}. {verdict}"])


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
