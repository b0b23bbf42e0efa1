"""What the README says can be run, runs; the files that it names exist; it stays short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lotan
from lotan.cli import COMMANDS
from tests.conftest import ROOT
from tests.project.pages import blocks, commands, run

pytestmark = pytest.mark.thorough

README = ROOT / "README.md"
FEWEST_COMMANDS = {"train", "explain", "predict", "tune"}


def test_everything_in_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one folder and one namespace, from the first model to the grid."""
    monkeypatch.chdir(tmp_path)
    names = run(README, tmp_path)
    assert len(names["run"].history) == 20
    assert "<iframe" in names["trainer"].plan._repr_html_()
    assert lotan.load("model").predict(names["graph"], engine="local").columns[0] == "id"
    written = {path.name for path in tmp_path.iterdir()}
    assert {"report.json", "plan.html", "predictions.parquet", "tune.html", "tune.json", "best"} <= written


def test_it_shows_the_commands_that_a_newcomer_needs() -> None:
    shown = [words for block in blocks(README) if block.language == "sh" for words in commands(block.text)]
    ours = {words[1] for words in shown if words[0] == "lotan"}
    assert FEWEST_COMMANDS <= ours <= set(COMMANDS)
    assert [words for words in shown if words[0] == "make"][:2] == [["make", "run"], ["make", "test"]]


def test_it_is_short_enough_to_be_read() -> None:
    assert len(README.read_text().splitlines()) <= 150


def test_files_it_names_and_links_exist() -> None:
    text = README.read_text()
    named = set(re.findall(r"`((?:lotan|planner|messenger|examples|benchmarks|docs|notebooks)/[\w/.]*)`", text))
    linked = set(re.findall(r"\]\(([^)#:]+)\)", text))
    assert {"benchmarks/results/arxiv.md", "docs/images/overview.svg", "LICENSE"} <= named | linked
    assert [name for name in named | linked if not (ROOT / name).exists() and name != "lotan/jars/"] == []


def test_figures_beside_pyg_are_those_of_the_table() -> None:
    results = (ROOT / "benchmarks" / "results" / "arxiv.md").read_text()
    for model in ("GCN", "GraphSAGE", "GIN", "GAT"):
        section = results.partition(f"\n## {model}\n")[2].partition("\n## ")[0]
        expected = [model]
        for contestant in ("pyg torch CSR", "local", "blocks"):
            cells = [cell.strip() for cell in re.search(rf"^\| {contestant} \|.*$", section, re.M)[0].split("|")[1:]]
            seconds, mebibytes = float(cells[2]), float(cells[6].replace(",", ""))
            expected.append(f"{seconds:.1f} s, {mebibytes / 1000:.1f} GB")
        assert f"| {' | '.join(expected)} |" in README.read_text()


def test_the_script_for_spark_submit_has_three_lines() -> None:
    lines = [line for line in (ROOT / "examples" / "train.py").read_text().split("\n") if line]
    assert lines == ["import sys", "from lotan.cli import main", 'sys.exit(main(["train", *sys.argv[1:]]))']
