"""The planner knows engines by their traits alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import planner
from lotan.engines.choice import ENGINES
from tests.planner.engines import SAMPLES

SOURCES = sorted(Path(planner.__file__).parent.rglob("*.py"))
NAME = r"""["'](?:local|rows|blocks)["']"""
COMPARED = re.compile(rf"(?:[=!]=|\bin|\bis|\bcase)\s*[(\[{{]?\s*{NAME}|{NAME}\s*(?:[=!]=|\bin\b)|{NAME},\s*{NAME}")


def comparisons(source: str) -> list[str]:
    """The lines of a source that compare something with the name of an engine."""
    rows_of_a_type = re.compile(r"""\brows\b.*["']rows["']""")  # not the engine
    return [line for line in source.splitlines() if COMPARED.search(line) and not rows_of_a_type.search(line)]


@pytest.mark.parametrize("line", [
    'if engine == "local":',
    "return engine != 'rows'",
    'if engine in ("local", "blocks"):',
    'case "blocks":',
    '"local" == engine',
])  # fmt: skip
def test_a_comparison_is_found(line):
    assert comparisons(line)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_engine_is_compared_by_its_name(path):
    doctests = re.compile(r">>> .*\n( .*\n)?")
    assert not comparisons(doctests.sub("", path.read_text()))


def test_the_samples_of_these_tests_are_what_engines_say():
    assert dict(ENGINES) == SAMPLES
