"""Learned rows of a run that lie on a disk: the learner whose rows are those of a buffer, and their first and last values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lotan.errors import StorageError
from lotan.graph.arrays import Ids, Positions
from lotan.graph.row_keys import vertex_keys
from lotan.memory.mapped import MappedMemory
from lotan.memory.trim import give_back_freed
from lotan.nn.learned_features import LearnedFeatures
from lotan.planning.identity import identity
from lotan.planning.job import Job
from lotan.planning.stored_rows import learned_modules, states_of_rows
from lotan.settings.config import TrainerConfig
from lotan.settings.row_wise import begin_row_state
from lotan.stages.randomness import Randomness, random_rows
from lotan.storage.buffer import PartitionBuffer
from lotan.storage.folder import written
from lotan.storage.placement import Placement
from lotan.storage.row_files import RowFiles, Versions, versions_of
from lotan.training.checkpoint import BEST, LAST, check_identity
from lotan.training.learner import Learner, Weights

CHECKPOINT = "checkpoint.txt"
"""The file beside rows that has the path of the directory of their run's checkpoints."""

DRAWN_ROWS = 1 << 12
"""The rows that are drawn at one time, with ten times their memory in random words."""


class StoredLearner(Learner):
    """A learner whose learned rows lie on a disk. Its model holds those of the partitions in memory.

    Args:
        model: The model, with the rows of the buffer.
        job: The job, whose partitions it trains on.
        config: The settings of the run.
        files: The files of the rows.
    """

    def __init__(self, model: torch.nn.Module, job: Job, config: TrainerConfig, files: RowFiles) -> None:
        self.files, self.best_versions, self.buffer = files, {}, None
        super().__init__(model, job, config)

    files: RowFiles
    best_versions: dict[str, tuple[int, str]]  # the files of the best epoch
    buffer: PartitionBuffer | None  # the partitions in memory, once there are some

    @property
    def _kept(self) -> Weights:
        return {name: tensor for name, tensor in self.weights.items() if name not in self._by_row}

    def remember(self, evaluation: np.ndarray | None, seconds: float = 0.0) -> bool:
        """Record the metrics of the current weights, see `Learner.remember`."""
        improved = super().remember(evaluation, seconds)
        if improved:
            self.best_versions = dict(self.files.versions)
        return improved

    def keep(self, best: bool) -> None:
        """Write a checkpoint if the run has a directory for them, and remove the rows that nobody needs any more."""
        assert self.buffer is not None  # the passes have set it
        if self.config.checkpoint_dir is not None:
            self.buffer.flush()  # between mini-batches, rows in memory have changed
            self.files.force()
        super().keep(best)
        self.files.keep([self.files.versions, self.best_versions])
        self.buffer.begin()

    def begin_rows(self) -> list[Tensor]:
        """Give the optimizer its state of the buffer's rows. Return the rows, and then their state."""
        parameters = dict(self.model.named_parameters())
        rows = [parameters[name] for name in self._by_row]
        name = type(self.config.optimizer).__name__
        states = [part for one in rows for part in begin_row_state(self.state.optimizer, one, name)]
        return [*(one.detach() for one in rows), *states]

    def _optimizer_state(self) -> dict[str, Any]:
        """Return the optimizer's state without that of rows, which is in their files."""
        found = super()._optimizer_state()
        of_rows = {
            number
            for group in found["param_groups"]
            for number, name in zip(group["params"], group["param_names"], strict=True)
            if name in self._by_row
        }
        states = {
            number: {key: value for key, value in state.items() if number not in of_rows or key == "step"}
            for number, state in found["state"].items()
        }
        return {**found, "state": states}

    def _storage_state(self) -> dict[str, Any]:
        return {"rows": dict(self.files.versions), "best": dict(self.best_versions)}

    def _resume_storage(self, storage: Mapping[str, Any]) -> None:
        versions = versions_of(storage["rows"])
        self.files.check(versions)
        self.files.versions, self.best_versions = versions, versions_of(storage["best"])


@contextmanager
def open_rows(
    model: torch.nn.Module,
    job: Job,
    config: TrainerConfig,
    folder: Path,
    placement: Placement,
    slots: int,
    ids: Ids,
) -> Iterator[tuple[StoredLearner, list[Tensor]]]:
    """Yield a learner whose learned rows lie on a disk, and the tensors that hold those of the partitions in memory.

    At the end of the block the model's learned rows are those of the best epoch. They lie in a file without a name, which
    vanishes with the last tensor that uses it. After an error the model has the rows that it had before.

    Args:
        model: The user's model.
        job: The job.
        config: The settings of the run.
        folder: The folder of the storage, which the caller has claimed.
        placement: The partitions.
        slots: The number of partitions that there is room for in memory.
        ids: The ids of all vertices, ascending.

    Raises:
        StorageError: If rows cannot be written or read, or if the folder has those of another run's checkpoint.
        CheckpointError: If the checkpoint to resume from belongs to a different run, or cannot be read.
    """
    modules = learned_modules(model)
    before = {name: (module.ids, module.weight) for name, module in modules.items()}
    widths = [module.width for module in modules.values()]
    files = RowFiles(folder, placement, [*widths, *(width for width in widths for _ in range(states_of_rows(config)))])
    _check_rows(files.folder, config)
    try:
        for module in modules.values():
            module.set_rows(ids, torch.empty(slots * placement.capacity, module.width))
        learner = StoredLearner(job.learned(model), job, config, files)
        columns = learner.begin_rows()
        _claim_rows(files.folder, config)
        if not files.versions:
            _write_first(files, modules, before, vertex_keys(ids), columns, config.seed)
        files.keep([files.versions, learner.best_versions])
        give_back_freed()
        yield learner, columns
        versions = learner.best_versions or files.versions
        found = rows_by_id(files, versions, len(modules), MappedMemory(str(folder)))
        for module, whole in zip(modules.values(), found, strict=True):
            module.set_rows(ids, whole)
    except BaseException:
        for name, module in modules.items():
            module.ids, module.weight = before[name]
        raise


def check_checkpoint(job: Job, config: TrainerConfig) -> None:
    """Check, before the storage is opened, that a run goes on from the checkpoint beside it.

    Raises:
        StorageError: If it would begin anew, and overwrite the rows of the checkpoint.
        CheckpointError: If the checkpoint belongs to a different run.
    """
    if config.checkpoint_dir is None:
        return
    if config.resume:
        check_identity(Path(config.checkpoint_dir), identity(job, config))
    elif (Path(config.checkpoint_dir) / LAST).exists():
        raise StorageError(
            f"{config.checkpoint_dir} holds the checkpoint of an earlier run, whose rows lie in files that a new run would "
            "overwrite; go on from it with resume=True, or name another directory"
        )


def _check_rows(folder: Path, config: TrainerConfig) -> None:
    """Refuse to overwrite rows that are those of another run's checkpoint."""
    place = folder / CHECKPOINT
    known = place.read_text() if place.exists() else ""
    if known and known != _owner(config) and any((Path(known) / name).exists() for name in (LAST, BEST)):
        raise StorageError(
            f"{folder} has the learned rows of the checkpoint in {known}, which this run would overwrite; name another folder "
            "with storage_dir, or remove that checkpoint"
        )


def _claim_rows(folder: Path, config: TrainerConfig) -> None:
    """Note whose rows those in a folder are from now on."""
    place = folder / CHECKPOINT
    written(place, lambda: place.write_text(_owner(config)))


def _owner(config: TrainerConfig) -> str:
    return "" if config.checkpoint_dir is None else str(Path(config.checkpoint_dir).resolve())


def _write_first(
    files: RowFiles,
    modules: Mapping[str, LearnedFeatures],
    before: Mapping[str, tuple[Any, torch.nn.Parameter]],
    keys: Positions,
    columns: Sequence[Tensor],
    seed: int,
) -> None:
    """Write the rows before the first epoch: those that the model had, or drawn ones, as in memory.

    Args:
        files: The files.
        modules: The modules of rows by name.
        before: Their ids and rows before the run.
        keys: The row keys of all vertices, in ascending order of ids.
        columns: The buffer's rows and their state, which is as new: the same for all rows.
        seed: The seed of the rows.
    """
    placement, made = files.placement, files.new()
    for column, of_buffer in zip(made[len(modules) :], columns[len(modules) :], strict=True):
        column.copy_(of_buffer[:1].expand_as(column))
    for partition in range(placement.partitions):
        cut = files.cut(partition, made)
        positions = placement.first(partition) + np.arange(placement.count(partition))
        for start in range(0, len(positions), DRAWN_ROWS):
            rows = placement.rows(positions[start : start + DRAWN_ROWS])
            for (name, module), column in zip(modules.items(), cut, strict=False):
                known = before[name][1].detach()
                drawn = known[torch.from_numpy(rows)] if len(known) else _drawn(name, module, keys[rows], seed)
                column[start : start + len(rows)] = drawn
        files.write(partition, 0, cut)
    files.force()


def _drawn(name: str, module: LearnedFeatures, keys: Positions, seed: int) -> Tensor:
    like, of = torch.empty(len(keys), module.width), Randomness(seed, 0)
    return random_rows(like, "normal", 0.0, of, f"{name}.weight", torch.from_numpy(keys)) * module.std


def rows_by_id(files: RowFiles, versions: Versions, columns: int, mapped: MappedMemory) -> list[Tensor]:
    """Return the first columns of all vertices in ascending order of ids, in memory that is a file.

    Args:
        files: The files.
        versions: Those to read.
        columns: The number of columns.
        mapped: The files of this process that hold them.
    """
    placement: Placement = files.placement
    held, count = files.new(columns), placement.vertices
    found = [mapped.new(count * width).view(count, width) for width in files.widths[:columns]]
    for partition in range(placement.partitions):
        cut = files.cut(partition, held)
        files.read(partition, cut, versions)
        rows = placement.rows(placement.first(partition) + np.arange(placement.count(partition)))
        for whole, column in zip(found, cut, strict=True):
            whole.index_copy_(0, torch.from_numpy(rows), column)
        mapped.give_all_back()
    return found
