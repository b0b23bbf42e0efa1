"""The buffer: rows come back as they were left, whatever the order; it takes its slots and no more; errors stop it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lotan.errors import StorageError
from lotan.storage.buffer import PartitionBuffer
from lotan.storage.placement import Placement
from lotan.storage.row_files import RowFiles
from planner.orders.beta import beta
from planner.orders.comet import comet
from planner.orders.order import Set

WIDTHS = (3, 2)


def made(folder: Path, vertices: int, partitions: int, slots: int) -> tuple[PartitionBuffer, list[torch.Tensor]]:
    """Return a buffer over files, and all rows as a whole in the order of positions."""
    placement = Placement(vertices, partitions, 0)
    files = RowFiles(folder, placement, WIDTHS)
    whole = [torch.rand(vertices, width) for width in WIDTHS]
    for partition in range(partitions):
        files.write(partition, 0, cut(placement, partition, whole))
    columns = [torch.full((slots * placement.capacity, width), torch.nan) for width in WIDTHS]
    return PartitionBuffer(files, slots, columns), whole


def cut(placement: Placement, partition: int, whole: list[torch.Tensor]) -> list[torch.Tensor]:
    start = placement.first(partition)
    return [column[start : start + placement.count(partition)] for column in whole]


def positions_of(placement: Placement, held: Set) -> np.ndarray:
    return np.concatenate([placement.first(one) + np.arange(placement.count(one)) for one in held])


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_rows_equal_those_of_a_table_in_memory(tmp_path: Path, seed: int, ahead: bool) -> None:
    torch.manual_seed(seed)
    buffer, whole = made(tmp_path, 43, 8, 6)
    files, placement = buffer.files, buffer.files.placement
    try:
        for epoch in (1, 2, 3):
            buffer.begin()
            order = comet(8, 4, 4, seed, epoch) if seed % 2 else beta(8, 5, seed, epoch)
            for held, then in zip(order.sets, (*order.sets[1:], ()), strict=True):
                buffer.turn_to(held, then if ahead else ())
                assert buffer.held == held
                positions = positions_of(placement, held)
                rows = buffer.rows(positions)
                some = torch.rand(len(positions)) < 0.5
                for column, known in zip(buffer.columns, whole, strict=True):
                    found = column[rows]
                    assert torch.equal(found, known[torch.from_numpy(positions)])
                    added = torch.rand_like(found) * some[:, None]
                    column[rows] += added
                    known[torch.from_numpy(positions)] += added
                buffer.changed()
            buffer.flush()
            for partition in range(8):
                read = files.cut(partition, files.new())
                files.read(partition, read)
                assert all(map(torch.equal, read, cut(placement, partition, whole)))
        assert buffer.most_held <= 6
        assert buffer.moved.written_bytes > 0
        assert buffer.moved.read_bytes >= 4 * 43 * sum(WIDTHS)
    finally:
        buffer.close()


def test_rows_that_nobody_changed_are_not_written(tmp_path: Path) -> None:
    buffer, _ = made(tmp_path, 12, 4, 3)
    for held in ((0, 1), (1, 2), (2, 3)):
        buffer.turn_to(held)
    buffer.flush()
    assert buffer.moved.written_bytes == 0
    buffer.close()


@pytest.mark.parametrize("failing", [1, 2, 4])
def test_after_a_failed_write_nothing_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    buffer, _ = made(tmp_path, 40, 8, 4)
    before = dict(buffer.files.versions)
    writes, real = [0], RowFiles.write

    def full(self: RowFiles, *given) -> int:
        writes[0] += 1
        if writes[0] == failing:
            raise StorageError("storage cannot be written: no space left on device")
        return real(self, *given)

    monkeypatch.setattr(RowFiles, "write", full)

    def epoch() -> None:
        order = beta(8, 3)
        for held, then in zip(order.sets, (*order.sets[1:], ()), strict=True):
            buffer.turn_to(held, then)
            buffer.changed()
        buffer.flush()

    with pytest.raises(StorageError, match="no space left"):
        epoch()
    buffer.close()
    assert writes[0] == failing  # nothing was written after it
    buffer.files.check(before)  # the files of the epoch before are whole


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_damaged_rows_are_an_error(tmp_path: Path, damage: str) -> None:
    buffer, _ = made(tmp_path, 12, 4, 3)
    path = buffer.files.path(2, 0)
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(whole[:-4] if damage == "cut" else b"\0\0\0\0" + whole[4:])
    with pytest.raises(StorageError, match=r"cut short or changed|cannot be read"):
        buffer.turn_to((1, 2))
    with pytest.raises(StorageError):
        buffer.files.check(buffer.files.versions)
    buffer.close()


def test_only_the_versions_that_are_kept_stay(tmp_path: Path) -> None:
    buffer, whole = made(tmp_path, 12, 4, 3)
    files = buffer.files
    first = dict(files.versions)
    for epoch in (1, 2):
        files.write(1, epoch, cut(files.placement, 1, whole))
    files.keep([first, files.versions])
    assert sorted(path.name for path in files.folder.iterdir()) == [
        "0.0.bin",
        "1.0.bin",
        "1.2.bin",
        "2.0.bin",
        "3.0.bin",
    ]
    buffer.close()
