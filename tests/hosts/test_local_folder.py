"""A run's folder for Spark's files goes with the run, and that of a killed one with the next start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lotan
from lotan.hosts.local_folder import OWNER, SPARK, STORAGE, LocalFolder, remove_stale

HOLDER = """
import sys
from lotan.hosts.local_folder import LocalFolder
folder = LocalFolder()
(folder.path / "blockmgr").mkdir()
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.mark.processes
def test_a_killed_run_s_folder_goes_at_the_next_start_and_a_living_one_s_stays(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        held = Path(process.stdout.readline().decode().strip())
        LocalFolder().close()
        assert (held / "blockmgr").is_dir()
        process.kill()
        process.wait(10)
        assert held.is_dir()
        ours = LocalFolder()
        assert not held.exists()
        remove_stale(tmp_path)
        assert ours.path.is_dir()
        ours.close()
        ours.close()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_written_to_while_it_is_removed_goes_at_the_next_start(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = LocalFolder()
    (folder.path / "blocks").mkdir()
    with monkeypatch.context() as during:
        during.setattr("shutil.rmtree", lambda path, ignore_errors: (Path(path) / "late").touch())
        folder.close()
    assert (folder.path / "blocks" / "late").is_file()
    LocalFolder().close()
    assert not list(tmp_path.iterdir())


def test_a_folder_whose_removal_was_cut_short_goes_at_the_next_start(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"{SPARK}1").mkdir()
    (tmp_path / f"{STORAGE}1").mkdir()
    LocalFolder().close()
    assert not list(tmp_path.iterdir())


def test_a_folder_of_the_user_with_such_a_name_stays(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    theirs = [tmp_path / f"{STORAGE}of-papers", tmp_path / "data" / f"{STORAGE}1", tmp_path / "data" / f"{SPARK}logs"]
    for place in theirs:
        place.mkdir(parents=True)
        (place / "kept").touch()
    for directory in (tmp_path, tmp_path / "data"):
        LocalFolder(STORAGE, directory).close()
    assert all((place / "kept").exists() for place in theirs)


def test_a_run_in_memory_removes_what_a_killed_one_from_a_disk_has_left(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / f"{STORAGE}of-a-killed-run"
    left.mkdir()
    (left / OWNER).touch()
    (left / "edges.bin").touch()
    graph = lotan.datasets.generate(60, 200, width=4, classes=3)
    lotan.Trainer(lotan.nn.GCN(4, 4, 2, 3), graph, engine="local", epochs=1, progress=False).fit()
    assert not left.exists()
