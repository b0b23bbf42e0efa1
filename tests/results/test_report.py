from __future__ import annotations

import json
import os
import pathlib

import pytest

from lotan.results.report import versions, write_report


def test_no_nan_in_json(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "new" / "report.json"
    write_report(path, {"epochs": [{"loss": float("nan"), "best": float("inf"), "ok": (1, 2.5)}], "name": "NaN"})
    assert json.loads(path.read_text()) == {"epochs": [{"loss": None, "best": None, "ok": [1, 2.5]}], "name": "NaN"}
    assert os.listdir(path.parent) == ["report.json"]


def test_a_failed_write_leaves_the_report_before(tmp_path: pathlib.Path) -> None:
    write_report(tmp_path / "report.json", {"seed": 1})
    with pytest.raises(TypeError):
        write_report(tmp_path / "report.json", {"seed": object()})
    assert json.loads((tmp_path / "report.json").read_text()) == {"seed": 1}
    assert os.listdir(tmp_path) == ["report.json"]


def test_versions_name_what_took_part() -> None:
    found = versions()
    assert found["python"] is not None
    assert found["torch"] is not None
