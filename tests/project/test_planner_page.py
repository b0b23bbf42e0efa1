"""What docs/planner.md says of rules is what their files say, and what it shows, runs."""

from __future__ import annotations

import doctest
import re
import runpy

from planner.cost import UNITS
from planner.rules import RULE_NAMES
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "planner.md"


def test_the_tables_are_up_to_date():
    updated = runpy.run_path(str(ROOT / "tools" / "planner_tables.py"))["updated"]
    page = PAGE.read_text()
    assert page == updated(page), "run tools/planner_tables.py"
    assert re.findall(r"^\| \[`(\w+)`\]", page, re.MULTILINE) == list(RULE_NAMES)
    assert re.findall(r"^\| `(\w+)` \| (?:fixed|graph|neural) \|", page, re.MULTILINE) == list(UNITS)


def test_its_examples_run():
    found = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 20
    assert found.failed == 0


def test_files_it_names_exist():
    text = PAGE.read_text()
    named = set(re.findall(r"`((?:lotan|planner|tests|tools)/[\w/]*(?:\.py)?)`", text))
    assert {name for name in named if not (ROOT / name).exists()} == {"planner/rules/drop_repeated_relu.py"}
