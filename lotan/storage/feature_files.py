"""The features of a graph on a disk: a file for each partition, which is written once and then only read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lotan.errors import StorageError
from lotan.graph.arrays import Positions
from lotan.memory.mapped import give_back
from lotan.memory.trim import give_back_freed
from lotan.storage.divided import DIVISION, division_of
from lotan.storage.folder import (
    FEATURES,
    check_room,
    mended_words,
    read_manifest,
    write_manifest,
    written,
    written_again,
)
from lotan.storage.placement import Placement
from lotan.storage.row_files import RowFiles, versions_of
from planner.chunks import PART_BYTES
from planner.scratch import NUMBER_BYTES

MANIFEST = f"{FEATURES}.json"
"""The list of the files with their checksums, which is written last."""

ANEW = "run again, which writes it anew"
"""The last part of an error about a file that was changed while a run used it."""


@dataclass(frozen=True)
class StoredFeatures:
    """The features of a graph as they are written to partitions."""

    rows: np.ndarray  # in any order, perhaps in a file of this process. float32 [vertices, width]
    order: Positions | None  # where the row of each vertex is, in ascending order of ids; None: they are in that order
    digest: str  # of the content of the graph

    def of(self, vertices: Positions) -> torch.Tensor:
        """Return the features of some vertices, which are given in ascending order of ids."""
        found = torch.from_numpy(self.rows[vertices if self.order is None else self.order[vertices]])
        give_back(self.rows)
        return found


def open_features(folder: Path, features: StoredFeatures, placement: Placement) -> tuple[RowFiles, bool]:
    """Return the files of a graph's features, which are written if they are not there, or are damaged.

    Args:
        folder: The folder of the storage, which the caller has claimed.
        features: The features.
        placement: The partitions.

    Returns:
        The files, and True if they were written now.

    Raises:
        StorageError: If they cannot be written, or the folder holds others.
    """
    width = features.rows.shape[1]
    files = RowFiles(folder, placement, [width], FEATURES, mend=ANEW)
    wanted = {**division_of(placement), "width": width, "digest": features.digest}
    known = read_manifest(folder / MANIFEST)
    names, damage = (*DIVISION, "width", "digest"), None
    if known is not None and {name: known[name] for name in names if name in known} == wanted:
        files.versions = versions_of(known["versions"])
        damage = _damage(files)
        if damage is None:
            return files, False
    elif known is not None:
        raise StorageError(
            f"{folder / FEATURES} holds the features of another graph, or of other partitions; name another folder with "
            "storage_dir, or remove this one"
        )
    elif (folder / MANIFEST).exists():
        damage = f"{folder / MANIFEST} was cut short or changed"
    written_again(damage, lambda: _write(folder, features, files, wanted))
    files.mended = mended_words(damage)
    return files, True


def _write(folder: Path, features: StoredFeatures, files: RowFiles, wanted: dict[str, Any]) -> None:
    check_room(folder, NUMBER_BYTES * features.rows.size, "the features")
    written(folder, lambda: (folder / MANIFEST).unlink(missing_ok=True))
    for partition in range(files.placement.partitions):
        files.write(partition, 0, [_gathered(features, files.placement, partition)])
        give_back_freed()
    files.force()
    files.keep([files.versions])
    content: dict[str, Any] = {**wanted, "versions": files.versions}
    write_manifest(folder / MANIFEST, content)


def _damage(files: RowFiles) -> str | None:
    """Return which file has not the rows that were written to it, in words; None: all have."""
    try:
        files.check(files.versions)
    except StorageError as error:
        return str(error).partition(";")[0]
    finally:
        give_back_freed()
    return None


def _gathered(features: StoredFeatures, placement: Placement, partition: int) -> torch.Tensor:
    """Return the features of a partition in the order of positions, read a part at a time."""
    count, width = placement.count(partition), features.rows.shape[1]
    found = torch.empty(count, width)
    length = max(1, PART_BYTES // (NUMBER_BYTES * max(1, width)))
    for start in range(0, count, length):
        some = np.arange(start, min(start + length, count))
        found[start : start + len(some)] = features.of(placement.rows(placement.first(partition) + some))
    return found
