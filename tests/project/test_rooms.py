"""`import lotan` notices a foreign package that has the name of one of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import lotan
from tests.conftest import ROOT

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("room", ["planner", "messenger"])
def test_foreign_package_is_named(room, tmp_path):
    (tmp_path / f"{room}.py").write_text("")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", "import lotan"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert f"{tmp_path}/{room}.py" in done.stderr
    assert f"Rename your {room}.py" in done.stderr


def test_all_public_names_are_there():
    assert [name for name in lotan.__all__ if not hasattr(lotan, name)] == []


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Grahp'"):
        _ = lotan.Grahp
