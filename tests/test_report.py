from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from lotan.report import MemoryWatch, resident_memory, versions, write_report


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


def test_memory_of_children_counts_as_workers_and_is_kept_as_peak() -> None:
    with MemoryWatch(interval=60) as watch:
        before = watch.peak["workers"]
        program = "block = bytearray(64 << 20); print('ready', flush=True); input()"
        child = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            watch.sample()
            child.communicate("\n", timeout=60)
        finally:
            child.kill()
        child.wait(timeout=60)
        assert resident_memory()["workers"] < watch.peak["workers"]
    assert watch.peak["workers"] - before >= 64 << 20
    assert watch.peak["driver"] > 1 << 20
    assert set(watch.peak) == {"driver", "jvm", "workers"}
