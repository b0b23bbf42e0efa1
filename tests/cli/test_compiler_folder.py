"""The folder that torch makes for its compiler is gone after a command, unless it is somebody's."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lotan.cli import compiler_folder
from lotan.cli.compiler_folder import CACHE

TRAIN = ["train", "--graph", "digits", "--hidden", "4", "--epochs", "1", "--engine", "local", "--quiet"]


def test_a_command_leaves_no_folder_of_the_compiler(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != CACHE} | {"TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-m", "lotan", *TRAIN], env=environment, check=True, timeout=120)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("named", [True, False])
def test_a_folder_that_is_somebodys_stays(named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atexit, "register", lambda call: call())
    monkeypatch.delenv(CACHE, raising=False)
    compiler_folder.remove_at_exit()  # torch has made none
    monkeypatch.setenv(CACHE, str(tmp_path))
    compiler_folder.remove_at_exit()  # the user has named it
    if not named:
        (tmp_path / "kept").touch()
        compiler_folder._remove()
    assert tmp_path.is_dir()
