"""What the pages say of rules and costs is what their files say, and the worked example of a rule runs."""

from __future__ import annotations

import doctest
import re
import runpy

import pytest

from planner.rules import RULE_NAMES
from planner.work import UNITS
from tests.conftest import ROOT

DEVELOPING = ROOT / "docs" / "developing"
EXAMPLE = "planner/rules/drop_repeated_relu.py"  # of the page on adding a rule: it is not to be there
PARTS = runpy.run_path(str(ROOT / "tools" / "build_docs.py"))["PARTS"]


def test_the_tables_have_every_rule_and_every_unit_of_work() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PARTS["rules"](), re.MULTILINE) == list(RULE_NAMES)
    assert re.findall(r"^\| `(\w+)` \| (?:fixed|graph|neural) \|", PARTS["units"](), re.MULTILINE) == list(UNITS)
    assert "| `SOFTMAX` | " in PARTS["times"]()


@pytest.mark.parametrize(("page", "examples"), [("adding-a-rule.md", 20), ("adding-a-step.md", 12)])
def test_the_examples_run(page: str, examples: int) -> None:
    found = doctest.testfile(str(DEVELOPING / page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert found.attempted >= examples
    assert found.failed == 0


@pytest.mark.parametrize("folder", ["concepts", "reference", "developing"])
def test_files_that_pages_name_exist(folder: str) -> None:
    named: set[str] = set()
    for page in (ROOT / "docs" / folder).glob("*.md"):
        named |= set(
            re.findall(r"`((?:lotan|planner|messenger|tests|tools|jvm|benchmarks)/[\w/.]*)`", page.read_text())
        )
    missing = {name for name in named if not (ROOT / name).exists()} - {"lotan/jars/"}
    examples = {EXAMPLE, "tests/planner/test_drop_repeated_relu.py"}
    examples |= {
        "planner/steps/edge_scale.py",
        "jvm/src/main/scala/lotan/EdgeScale.scala",
        "tests/engines/test_edge_scale.py",
    }
    assert missing == (examples if folder == "developing" else set())


def test_the_steps_of_the_concept_page_are_those_of_a_plan() -> None:
    import lotan
    from lotan.tracing.trace import trace
    from planner import compile_plan
    from planner.loss import LossSpec
    from planner.statistics import Statistics

    model = lotan.nn.GCN(in_channels=8, hidden_channels=16, num_layers=2, out_channels=3, dropout=0.5)
    specs = [trace(model, 8, training=training) for training in (True, False)]
    loss, statistics = LossSpec("classification", 3, normalizer=10.0), Statistics(vertices=100, edges=500, width=8)
    plan = compile_plan(*specs, loss, statistics).plan
    page = (ROOT / "docs" / "concepts" / "epoch-as-a-plan.md").read_text()
    shown = re.findall(r"^  (\w+\(.*\) -> .*)$", page, re.MULTILINE)
    assert shown == [step.label for step in (*plan.prepare, *plan.train)]


def test_modules_that_pages_name_exist() -> None:
    """As files, for importing all of them would take long."""
    text = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    named = set(re.findall(r"`((?:lotan|planner|messenger)(?:\.[a-z_]+)+)`", text))
    public = {f"lotan.{name}" for name in ("datasets", "load", "ml", "nn", "persisted", "tune")} | {"lotan.tracking"}
    paths = {name: ROOT / name.replace(".", "/") for name in named - public if not name.startswith("lotan.nn.")}
    assert "lotan.engines.base" in paths
    assert [name for name, path in paths.items() if not (path.is_dir() or path.with_suffix(".py").is_file())] == []
