"""The notebooks run, cell by cell; what is committed with them is what a run that went well has shown."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession

from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
WITH_SPARK = ("01_first_model", "05_spark_ml", "06_model_of_pyg", "08_links_in_spark")
LARGEST = 1_000_000  # bytes of a notebook with its outputs
FAR_OFF = 5.0  # times that a measured figure is off its estimate: of a machine that was busy elsewhere


@pytest.fixture(autouse=True)
def beside_the_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel starts in the notebooks' folder, and finds what lies there."""
    monkeypatch.syspath_prepend(str(ROOT / "notebooks"))


def cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def run_all(path: Path) -> None:
    """As a notebook does: the last expression of a cell is shown."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells(path):
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, path.name, "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
            for name in ("_repr_html_", "_repr_svg_", "__repr__"):
                getattr(value, name, value.__repr__)()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_outputs_are_those_of_a_run_from_top_to_bottom(path: Path) -> None:
    counts = [cell["execution_count"] for cell in cells(path)]
    assert counts == list(range(1, len(counts) + 1))
    outputs = [output for cell in cells(path) for output in cell["outputs"]]
    assert [output for output in outputs if output["output_type"] == "error"] == []
    assert {output.get("name") for output in outputs} <= {"stdout", None}
    assert path.stat().st_size < LARGEST


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_what_github_leaves_out_has_a_still_picture_before_it(path: Path) -> None:
    shown = [output.get("data", {}) for cell in cells(path) for output in cell["outputs"]]
    pictures = ["".join(data["image/svg+xml"]) for data in shown if "image/svg+xml" in data]
    pages = sum("<iframe" in "".join(data.get("text/html", "")) for data in shown)
    assert len(pictures) >= pages
    for picture in pictures:
        drawn = ElementTree.fromstring(picture)
        assert not {element.tag.partition("}")[2] for element in drawn.iter()} & {"style", "script", "clipPath"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_outputs_are_not_those_of_a_busy_machine(path: Path) -> None:
    texts = ["".join(output.get("text", "")) for cell in cells(path) for output in cell["outputs"]]
    assert [off for text in texts for off in re.findall(r"! ([\d.]+) times", text) if float(off) >= FAR_OFF] == []


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    "path", [path for path in NOTEBOOKS if path.stem not in WITH_SPARK], ids=lambda path: path.stem
)
def test_notebook(path: Path) -> None:
    run_all(path)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem in WITH_SPARK], ids=lambda path: path.stem)
def test_notebook_on_spark(path: Path, spark: SparkSession) -> None:
    """In the suite's session, which is the one that a notebook finds."""
    run_all(path)


def test_links_between_them_lead_somewhere() -> None:
    for path in NOTEBOOKS:
        texts = [
            "".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "markdown"
        ]
        links = [link.split(")")[0].split("#")[0] for text in texts for link in text.split("](")[1:]]
        assert [link for link in links if not (path.parent / link).exists()] == []
