"""`lotan doctor`."""

from __future__ import annotations

import argparse

MARKS = {"ok": "ok     ", "warning": "WARNING", "error": "ERROR  "}


def add_options(parser: argparse.ArgumentParser) -> None:
    """None."""


def run(options: argparse.Namespace) -> int:
    """Print what was found; 1 if training cannot run."""
    from lotan.doctor import can_train, examine

    findings = examine()
    for finding in findings:
        expected = f"  (expected: {finding.expected})" if finding.expected and finding.status != "ok" else ""
        print(f"{MARKS[finding.status]}  {finding.name:<18}{finding.found}{expected}")
        if finding.mend:
            print(f"{'':<27}-> {finding.mend}")
    able = can_train(findings)
    print("Training can run." if able else "Training cannot run here until what is marked ERROR is mended.")
    return 0 if able else 1
