"""The notebooks run, cell by cell; what is committed with them is what a run that went well has shown."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
WITH_SPARK = ("01_first_model", "05_spark_ml")
LARGEST = 1_000_000  # bytes of a notebook with its outputs


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
            getattr(value, "_repr_html_", value.__repr__)()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_outputs_are_those_of_a_run_from_top_to_bottom(path: Path) -> None:
    counts = [cell["execution_count"] for cell in cells(path)]
    assert counts == list(range(1, len(counts) + 1))
    outputs = [output for cell in cells(path) for output in cell["outputs"]]
    assert [output for output in outputs if output["output_type"] == "error"] == []
    assert {output.get("name") for output in outputs} <= {"stdout", None}
    assert path.stat().st_size < LARGEST


@pytest.mark.parametrize(
    "path", [path for path in NOTEBOOKS if path.stem not in WITH_SPARK], ids=lambda path: path.stem
)
def test_notebook(path: Path) -> None:
    run_all(path)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem in WITH_SPARK], ids=lambda path: path.stem)
def test_notebook_on_spark(path: Path, spark: SparkSession) -> None:
    """In the suite's session, which is the one that a notebook finds."""
    run_all(path)


def test_links_between_them_lead_somewhere() -> None:
    for path in NOTEBOOKS:
        texts = [
            "".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "markdown"
        ]
        links = [link.split(")")[0] for text in texts for link in text.split("](")[1:]]
        assert [link for link in links if not (path.parent / link).exists()] == []
