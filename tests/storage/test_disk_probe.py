"""The measurement of a disk: once a file system, and a guess where nothing can be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from lotan.storage import disk_probe
from lotan.storage.disk_probe import LEAST_BLOCK, block_of, disk_of


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_probe, "_known", {})


def test_a_disk_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = disk_of(tmp_path / "not" / "there")
    assert found.bytes_per_second > 0
    assert 0 < found.access_seconds < 10
    assert found.block == max(LEAST_BLOCK, os.statvfs(tmp_path).f_bsize)
    monkeypatch.setattr(os, "fsync", None)  # a second measurement would fail
    assert disk_of(tmp_path) is found
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("said", "taken"), [(512, 4096), (1 << 20, 1 << 20)])
def test_a_block_is_that_of_the_file_system(
    said: int, taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda place: SimpleNamespace(f_bsize=said))
    assert block_of(tmp_path) == taken


def test_a_full_disk_is_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*of: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    assert (disk_of(tmp_path).bytes_per_second, disk_of(tmp_path).access_seconds) == disk_probe.GUESS
