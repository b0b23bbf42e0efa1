"""Tests of what is said of a folder for storage before a run uses it."""

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

import lotan
from lotan.cli import main
from lotan.errors import StorageError
from lotan.hosts.local_folder import STORAGE
from lotan.storage import folder as folders
from lotan.storage.folder import HELD, beside_storage, claimed_storage, nearest, refusal, remote_notes


def trainer(place: Path) -> lotan.Trainer:
    """A Trainer that would train from a disk."""
    regime = lotan.MiniBatch(20, (4,), order="each_once(partitions=4, buffer=2)")
    graph = lotan.datasets.generate(120, 500, width=6, classes=3)
    return lotan.Trainer(
        lotan.nn.GraphSAGE(6, 4, 1, 3), graph, regime=regime, storage_dir=place, epochs=1, progress=False
    )


def on(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Let all folders be on a file system of some type."""
    monkeypatch.setattr(folders, "file_system", lambda place: kind)


def test_explain_says_that_a_folder_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "ext4")
    assert "would be refused" not in trainer(tmp_path / "new").explain()
    on(monkeypatch, "tmpfs")
    text = trainer(tmp_path / "new").explain()
    assert f"a run would be refused: {tmp_path} is itself in memory (tmpfs)" in text
    assert not (tmp_path / "new").exists()


def test_a_folder_on_another_host_is_named_before_and_in_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "ext4")
    assert remote_notes(tmp_path) == ()
    on(monkeypatch, "nfs4")
    asked = trainer(tmp_path)
    assert "is on a file system of type nfs4, which may be slow" in asked.explain()
    assert any("type nfs4" in warning for warning in asked.job.warnings)
    on(monkeypatch, "fuse.sshfs")
    assert remote_notes(tmp_path)


def test_too_little_room_and_a_folder_that_cannot_be_written_are_known_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, "ext4")
    assert refusal(tmp_path, 100) is None
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=50))
    assert "has 50 B left for 100 B" in (refusal(tmp_path / "new", 100) or "")
    (tmp_path / HELD).touch()  # the folder is a storage
    (tmp_path / "features").mkdir()
    (tmp_path / "features" / "0.0.bin").write_bytes(b"." * 60)
    (tmp_path / "of-somebody-else").write_bytes(b"." * 60)
    assert refusal(tmp_path, 100) is None  # what an earlier run wrote is written over
    assert refusal(tmp_path, 120) is not None  # other files are not
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    assert refusal(tmp_path, 1) == f"nothing can be written to {tmp_path}"


@pytest.mark.parametrize("name", ["manifest.json", "edges.bin", "held.bin", "features.json", "features", "rows"])
def test_files_of_the_user_with_such_names_stay(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"name": "mine"}')
    assert f"{name} is there, and no run has written it" in str(refusal(tmp_path, 1)), "explain says it too"
    with pytest.raises(StorageError, match=f"{name} is there, and no run has written it"), claimed_storage(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [name]
    (tmp_path / name).rename(tmp_path / "mine")
    with claimed_storage(tmp_path):
        (tmp_path / name).touch()
    with claimed_storage(tmp_path):  # a storage of which only this is left
        pass


def test_the_nearest_folder_is_asked(tmp_path: Path) -> None:
    assert nearest(tmp_path / "a" / "b") == nearest(tmp_path) == tmp_path
    assert nearest(tmp_path / ("a" * 300)) == tmp_path  # which the system refuses to look for
    assert refusal(tmp_path / ("a" * 300), 1) is None


@pytest.mark.parametrize(
    ("number", "mend"),
    [
        (errno.ENOSPC, "No space left on device; free some space, or name another folder"),
        (errno.EEXIST, "File exists; a file is in the place of a folder: remove it, or name another folder"),
        (errno.EROFS, "Read-only file system; mount it for writing, or name another folder"),
        (errno.EIO, "free some space, mend the permissions, or name another folder"),
    ],
)
def test_an_error_of_the_system_says_what_mends_it(number: int, mend: str) -> None:
    def fails() -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(StorageError, match=f"storage cannot be written to place: .*{mend} with storage_dir"):
        folders.written(Path("place"), fails)


def test_explain_says_that_a_file_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for name in ("file", "link"):
        for place in (tmp_path / name, tmp_path / name / "parts"):
            assert refusal(place, 1) == f"{tmp_path / name} is no folder"


@pytest.mark.parametrize("there", [True, False])
def test_what_a_killed_analysis_has_left_goes_with_the_next_run(there: bool, tmp_path: Path) -> None:
    storage = tmp_path / "parts"
    if there:
        storage.mkdir()
    with beside_storage(storage) as left:
        assert left is not None
        (left / "edges.bin").touch()
        kept = shutil.copytree(left, left.with_name(f"{STORAGE}killed"))  # whose lock nobody has
        storage.mkdir(exist_ok=True)
        with claimed_storage(storage):
            assert left.is_dir()
            assert not kept.exists()


def test_the_command_writes_nothing_if_there_is_no_room_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lotan.datasets.generate(120, 500, width=6, classes=3).save(str(tmp_path / "graph"))
    of_edges, of_features = 12 * 500, 4 * 6 * 120
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=of_edges + of_features - 1))
    words = ["--graph", str(tmp_path / "graph"), "--order", "each_once", "--partitions", "4"]
    assert main(["partition", *words, "--out", str(tmp_path / "parts")]) == 2
    assert "the edges and the features take up to 8,880 bytes" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "parts").iterdir()] == [folders.HELD]
