from __future__ import annotations

import errno
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
import torch

import lotan
from lotan.files import write_atomically
from lotan.training import checkpoint as module
from lotan.training.checkpoint import (
    BEST,
    LAST,
    PREVIOUS,
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    put_aside,
    save_checkpoint,
)

IDENTITY = {"seed": "0", "model": "abc"}


def _checkpoint(epoch: int) -> Checkpoint:
    weights = {"weight": torch.full((3, 2), float(epoch))}
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([("weight", parameter)])
    parameter.grad = torch.ones(3)
    optimizer.step()
    return Checkpoint(
        epoch=epoch,
        weights=weights,
        optimizer=optimizer.state_dict(),
        stopping={"best": 0.5, "epoch": epoch, "waited": 0},
        best_weights=weights,
        history=[{"epoch": epoch, "loss": 0.25, "val": {"accuracy": 0.5}}],
        identity=IDENTITY,
    )


def test_round_trip(tmp_path: pathlib.Path) -> None:
    saved = _checkpoint(3)
    save_checkpoint(tmp_path / "new", saved, best=True)
    loaded = load_checkpoint(tmp_path / "new", IDENTITY)
    assert loaded is not None
    assert loaded.epoch == 3
    assert loaded.history == saved.history
    assert loaded.stopping == saved.stopping
    assert torch.equal(loaded.weights["weight"], saved.weights["weight"])
    assert torch.equal(loaded.optimizer["state"][0]["exp_avg"], saved.optimizer["state"][0]["exp_avg"])
    assert sorted(os.listdir(tmp_path / "new")) == [BEST, LAST]


def test_best_stays_when_last_goes_on(tmp_path: pathlib.Path) -> None:
    save_checkpoint(tmp_path, _checkpoint(1), best=True)
    save_checkpoint(tmp_path, _checkpoint(2), best=False)
    assert torch.load(tmp_path / BEST, weights_only=True)["epoch"] == 1
    assert torch.load(tmp_path / LAST, weights_only=True)["epoch"] == 2


def test_best_is_copied_where_there_are_no_links(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    save_checkpoint(tmp_path, _checkpoint(1), best=True)
    assert torch.load(tmp_path / BEST, weights_only=True)["epoch"] == 1


def test_empty_directory_holds_none(tmp_path: pathlib.Path) -> None:
    assert load_checkpoint(tmp_path, IDENTITY) is None
    assert load_checkpoint(tmp_path / "missing", IDENTITY) is None


def test_half_written_file_is_ignored(tmp_path: pathlib.Path) -> None:
    save_checkpoint(tmp_path, _checkpoint(1), best=False)
    (tmp_path / "last.pt.unfinished").write_bytes((tmp_path / LAST).read_bytes()[:100])
    loaded = load_checkpoint(tmp_path, IDENTITY)
    assert loaded is not None
    assert loaded.epoch == 1


@pytest.mark.parametrize("length", [0, 1, 500, -1])
def test_damaged_last_falls_back_on_best(tmp_path: pathlib.Path, length: int) -> None:
    save_checkpoint(tmp_path, _checkpoint(1), best=True)
    save_checkpoint(tmp_path, _checkpoint(2), best=False)
    content = (tmp_path / LAST).read_bytes()
    (tmp_path / LAST).write_bytes(content[:length])
    with pytest.warns(UserWarning, match="damaged"):
        loaded = load_checkpoint(tmp_path, IDENTITY)
    assert loaded is not None
    assert (loaded.epoch, loaded.is_last) == (1, False)
    (tmp_path / BEST).unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be read") as caught:
        load_checkpoint(tmp_path, IDENTITY)
    assert f"{tmp_path / LAST} (" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2 * len(str(tmp_path)) + 200


@pytest.mark.parametrize("content", [[1], torch.ones(3), {"format": 1}])
def test_another_torch_file_is_no_checkpoint(tmp_path: pathlib.Path, content: object) -> None:
    torch.save(content, tmp_path / LAST)
    with pytest.raises(CheckpointError, match=rf"{LAST}.* (not a lotan file|no checkpoint of lotan's)"):
        load_checkpoint(tmp_path, IDENTITY)


def test_a_pickle_is_not_executed(tmp_path: pathlib.Path) -> None:
    torch.save({"format": 1, "epoch": pathlib.PurePosixPath("/")}, tmp_path / LAST)
    with pytest.raises(CheckpointError, match="can be read"):
        load_checkpoint(tmp_path, IDENTITY)


def test_another_run_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    save_checkpoint(tmp_path, _checkpoint(1), best=False)
    with pytest.raises(CheckpointError, match="seed was '0' and is now '7'"):
        load_checkpoint(tmp_path, {**IDENTITY, "seed": "7"})


def test_a_place_that_cannot_hold_a_directory_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("x")
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CheckpointError, match=f"cannot be written to {directory}"):
            put_aside(directory)


@pytest.mark.processes
def test_full_disk_leaves_the_checkpoint_before(tmp_path: pathlib.Path) -> None:
    """A real one: /dev/full cannot be renamed over, so the process limits the size of its own files."""
    save_checkpoint(tmp_path, _checkpoint(1), best=True)
    script = f"""
        import pathlib, resource, signal, sys
        sys.path[:0] = {sys.path!r}
        from tests.training.test_checkpoint import _checkpoint
        from lotan.training.checkpoint import CheckpointError, save_checkpoint
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            save_checkpoint(pathlib.Path({str(tmp_path)!r}), _checkpoint(2), best=True)
        except CheckpointError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert "epoch 2 could not be written" in done.stdout, done.stderr
    loaded = load_checkpoint(tmp_path, IDENTITY)
    assert loaded is not None
    assert loaded.epoch == 1
    assert sorted(os.listdir(tmp_path)) == [BEST, LAST]


@pytest.mark.parametrize("by_torch", [False, True])
def test_a_full_disk_is_an_os_error_that_names_the_file(tmp_path: pathlib.Path, by_torch: bool) -> None:
    def write(_: object) -> None:
        try:
            raise OSError(28, "No space left on device")
        except OSError:
            if by_torch:  # as its zip writer does
                raise RuntimeError("unexpected pos 0 vs 64")  # noqa: B904
            raise

    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path / 'file'}'"):
        write_atomically(tmp_path / "file", write)
    assert os.listdir(tmp_path) == []


def test_the_file_is_forced_before_it_is_renamed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(module.os, "fsync", lambda descriptor: (order.append("fsync"), fsync(descriptor)))
    monkeypatch.setattr(module.os, "replace", lambda *paths: (order.append("rename"), replace(*paths)))
    save_checkpoint(tmp_path, _checkpoint(1), best=False)
    assert order == ["fsync", "rename", "fsync"]


def test_an_earlier_run_is_put_aside(tmp_path: pathlib.Path) -> None:
    save_checkpoint(tmp_path, _checkpoint(9), best=True)
    with pytest.warns(UserWarning, match="kept as last"):
        put_aside(tmp_path)
    assert os.listdir(tmp_path) == [PREVIOUS]
    assert load_checkpoint(tmp_path, IDENTITY) is None


def test_a_run_that_goes_on_from_the_best_epoch_keeps_its_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged last checkpoint must not become the best one."""

    def trained(epochs: int, resume: bool) -> lotan.Run:
        torch.manual_seed(0)
        graph, model = lotan.datasets.generate(60, 240, 6, 3), lotan.nn.GCN(6, 4, 2, 3)
        given = {"engine": "local", "checkpoint_dir": tmp_path, "progress": False, "optimizer": lotan.Adam(lr=0.0)}
        return lotan.Trainer(model, graph, epochs=epochs, resume=resume, **given).fit()

    trained(2, resume=False)  # with no step, the first epoch stays the best one
    assert (tmp_path / BEST).read_bytes() != (tmp_path / LAST).read_bytes()
    (tmp_path / LAST).write_bytes(b"cut short")
    monkeypatch.setattr("lotan.training.learner.keep_as_best", lambda directory: pytest.fail("best.pt is replaced"))
    with pytest.warns(UserWarning, match="damaged"):
        assert len(trained(3, resume=True).history) == 3
