"""Checkpoints: the whole state of training, in one file that is written completely or not at all.

One is written after each epoch, and on request between mini-batches.

A directory holds `last.pt` and `best.pt` (the checkpoint at the best epoch so far). A new file is written beside the
old one, forced to the disk and renamed over the old one; then the directory is forced to the disk too. So one whole
checkpoint exists whenever the process or the machine dies. The files hold only plain data and tensors
(`torch.load(weights_only=True)`).
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch

from lotan.errors import LotanError
from lotan.files import DamagedError, force_directory, lock, read_data, write_atomically

FORMAT = 1
LAST, BEST, PREVIOUS = "last.pt", "best.pt", "last.previous.pt"


class CheckpointError(LotanError):
    """A checkpoint that cannot be written, read or resumed from."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of training after an epoch or a mini-batch. A resumed run equals the uninterrupted one, bit for bit."""

    epoch: int  # number of finished epochs
    weights: dict[str, torch.Tensor]  # parameters and buffers, by name
    optimizer: dict[str, Any]  # the optimizer's state_dict
    stopping: dict[str, Any]  # the state of early stopping: best value and epoch, epochs without improvement
    best_weights: dict[str, torch.Tensor]  # parameters and buffers at the best epoch
    history: list[dict[str, Any]]  # one entry per epoch, as in the report
    identity: dict[str, str]  # what identifies the run: seed, model, graph, optimizer, plan
    schedule: dict[str, Any] = field(default_factory=dict)  # the state_dict of the learning rate's scheduler
    changes: list[dict[str, Any]] = field(default_factory=list)  # settings with which it went on, with "after_epoch"
    storage: dict[str, Any] = field(default_factory=dict)  # the files of learned rows; empty if these are in memory
    part: dict[str, Any] = field(default_factory=dict)  # the mini-batches that the next epoch has done; empty: none
    is_last: bool = True  # False if it was read from the file of the best epoch, because the last one is not whole


def save_checkpoint(directory: Path, checkpoint: Checkpoint, *, best: bool) -> None:
    """Write `last.pt`, and make `best.pt` the same file if `best` is true.

    Raises:
        CheckpointError: If the disk is full or the directory cannot be written. The previous checkpoint stays as it was.
    """
    kept = [item.name for item in fields(checkpoint) if item.name != "is_last"]
    content = {"format": FORMAT, **{name: getattr(checkpoint, name) for name in kept}}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(directory / LAST, lambda stream: torch.save(content, stream))
        if best:
            keep_as_best(directory)
    # torch's zip writer turns an OSError of the stream into a RuntimeError
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"the checkpoint of epoch {checkpoint.epoch} could not be written to {directory}: {error}; the one "
            f"before it is whole: free some space or mend the permissions, then resume"
        ) from error


def load_checkpoint(directory: Path, identity: Mapping[str, str]) -> Checkpoint | None:
    """Return the newest whole checkpoint of a directory, or None if the directory holds none.

    Args:
        directory: The directory of the checkpoints.
        identity: The identity of this run, which the checkpoint must have too.

    Raises:
        CheckpointError: If the directory holds checkpoints of which none can be read, or those of a different run.
    """
    damaged = {}
    for path in (directory / LAST, directory / BEST):
        try:
            checkpoint = _read(path)
        except FileNotFoundError:
            continue
        except (DamagedError, OSError) as error:
            damaged[path] = error
            continue
        if damaged:
            warnings.warn(f"{', '.join(map(str, damaged))} is damaged; continuing from {path}", stacklevel=2)
        _check_identity(path, checkpoint.identity, identity)
        return replace(checkpoint, is_last=path.name == LAST)
    if damaged:
        reasons = "; ".join(map(str, damaged.values()))
        raise CheckpointError(
            f"no checkpoint in {directory} can be read: {reasons}. Put a whole copy in its place, or train anew "
            "without resume"
        )
    return None


def check_identity(directory: Path, identity: Mapping[str, str]) -> None:
    """Check that the newest whole checkpoint of a directory, if there is one, belongs to a run.

    Raises:
        CheckpointError: If it belongs to a different run.
    """
    if known := known_identity(directory):
        _check_identity(directory / LAST, known, identity)


def known_identity(directory: Path) -> Mapping[str, str]:
    """Return the identity of the newest whole checkpoint of a directory, or nothing if there is none that can be read."""
    for path in (directory / LAST, directory / BEST):
        try:
            return _read(path).identity
        except (DamagedError, CheckpointError, OSError):
            continue
    return {}


def keep_as_best(directory: Path) -> None:
    """Make `best.pt` the same as `last.pt`: by a hard link where the file system has hard links, or else by a copy."""
    unfinished = directory / (BEST + ".unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        os.link(directory / LAST, unfinished)
    except OSError:
        shutil.copyfile(directory / LAST, unfinished)
    os.replace(unfinished, directory / BEST)
    force_directory(directory)


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Make the directory if needed, and lock other runs out of it until the block ends.

    Raises:
        CheckpointError: If another run uses the directory, or if it cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise _not_writable(directory, error) from error
    try:
        if not lock(descriptor):
            raise CheckpointError(
                f"another run writes its checkpoints to {directory}; wait for its end, or name another directory"
            )
        yield
    finally:
        os.close(descriptor)


def put_aside(directory: Path) -> None:
    """Make room for a new run: the last checkpoint of an earlier run is renamed to `last.previous.pt`.

    Raises:
        CheckpointError: If the directory cannot be written.
    """
    try:
        _put_aside(directory)
    except OSError as error:
        raise _not_writable(directory, error) from error


def _not_writable(directory: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"checkpoints cannot be written to {directory}: {error}; name a directory that can be written"
    )


def _put_aside(directory: Path) -> None:
    if (directory / LAST).exists():
        warnings.warn(
            f"{directory} holds the checkpoint of an earlier run; it is kept as {PREVIOUS}. "
            f"To go on from it, rename it to {LAST} and resume",
            stacklevel=3,
        )
        os.replace(directory / LAST, directory / PREVIOUS)
    (directory / BEST).unlink(missing_ok=True)


def _read(path: Path) -> Checkpoint:
    content = read_data(path)
    if content.pop("format", None) != FORMAT:
        raise CheckpointError(
            f"{path} was written by another version of lotan (its format is not {FORMAT}); train anew"
        )
    try:
        return Checkpoint(**content)
    except TypeError as error:
        raise DamagedError(f"{path} is no checkpoint of lotan's") from error


def _check_identity(path: Path, found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    differences = [
        f"{name} was {found.get(name)!r} and is now {expected.get(name)!r}"
        for name in sorted({*found, *expected})
        if found.get(name) != expected.get(name)
    ]
    if differences:
        raise CheckpointError(
            f"{path} belongs to a different run: {'; '.join(differences)}. Resume with the same settings, or train "
            f"anew in another directory"
        )
