"""The buffer: the partitions in memory, of which the next are read and the last are written while others train.

The buffer has a slot for each partition that is trained on, and for those that are read ahead. It takes all of its memory
at once and never more. One thread reads and writes, in the order in which it is told to. So a partition is written before
its slot is read into, and before it is read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from lotan.errors import StorageError
from lotan.graph.arrays import Positions
from lotan.storage.row_files import Moved, RowFiles


class PartitionBuffer:
    """The rows of some partitions in memory.

    Args:
        files: The files of all partitions.
        slots: The number of partitions that there is room for.
        columns: The tensors that hold the rows, [slots x vertices of the largest partition, width] each.
        fixed: Files of rows that nobody changes, such as features, with the tensor that holds these; None: there are none.
    """

    def __init__(
        self,
        files: RowFiles,
        slots: int,
        columns: Sequence[Tensor],
        fixed: tuple[RowFiles, Tensor] | None = None,
    ) -> None:
        self.files, self.slots, self.columns, self.fixed, self.moved = files, slots, columns, fixed, Moved()
        self.most_held = 0  # the most partitions that were in memory at one time
        self._placement = files.placement
        self._slot = np.full(self._placement.partitions, -1, dtype=np.int64)  # of each partition that is trained on
        self._free = list(range(slots))[::-1]
        self._ahead: dict[int, tuple[int, Future[None]]] = {}  # the slots of partitions that are being read
        self._dirty: set[int] = set()
        self._begun = False  # True after the first set of an epoch
        self._generation = files.next_generation  # of the files that are written
        self._writing: list[Future[None]] = []
        self._error: BaseException | None = None  # the first one, after which nothing is read or written
        self._thread = ThreadPoolExecutor(1, "lotan-partitions")

    @property
    def held(self) -> tuple[int, ...]:
        """The partitions that are trained on."""
        return tuple(np.flatnonzero(self._slot >= 0).tolist())

    def begin(self) -> None:
        """Write to files of a new generation from now on, so that those of a checkpoint stay as they are."""
        self._generation = self.files.next_generation

    def begin_epoch(self) -> None:
        """Count the partitions of the next set as those that an epoch begins with, and not as swaps."""
        self._begun = False

    def turn_to(self, held: Collection[int], then: Collection[int] = ()) -> None:
        """Bring partitions into memory, and begin to read those that are needed next.

        Args:
            held: The partitions to train on.
            then: The partitions that will be trained on after that.

        Raises:
            StorageError: If one cannot be read, or one before could not be written.
        """
        started = time.perf_counter()
        self.moved.swaps += self._begun * len(set(held) - set(self.held))
        self._begun = True
        for partition in [one for one in self.held if one not in held]:
            self._evict(partition)
        for partition in [one for one in self._ahead if one not in held]:  # another order than was announced
            slot, reading = self._ahead.pop(partition)
            reading.result()
            self._free.append(slot)
        for partition in [one for one in held if self._slot[one] < 0 and one not in self._ahead]:
            self._read_ahead(partition)
        for partition in [one for one in held if one in self._ahead]:
            slot, reading = self._ahead.pop(partition)
            reading.result()
            self._slot[partition] = slot
        self._check_written(wait=False)
        self.moved.partition_wait_seconds += time.perf_counter() - started
        for partition in [one for one in then if self._slot[one] < 0][: len(self._free)]:
            self._read_ahead(partition)

    def changed(self) -> None:
        """Say that rows of the partitions in memory change, so that they are to be written."""
        self._dirty.update(self.held)

    def rows(self, positions: Positions) -> Tensor:
        """Return the rows of the buffer's tensors that hold some positions, all of which are in memory."""
        partitions = self._placement.partition_of(positions)
        firsts = partitions * self._placement.vertices // self._placement.partitions
        return torch.from_numpy(self._slot[partitions] * self._placement.capacity + positions - firsts)

    def flush(self) -> None:
        """Write all partitions that were changed, and wait until everything is written. They stay in memory.

        Raises:
            StorageError: If one cannot be written.
        """
        started = time.perf_counter()
        for partition in sorted(self._dirty):
            self._write(partition, int(self._slot[partition]))
        self._dirty.clear()
        self._check_written(wait=True)
        self.moved.partition_wait_seconds += time.perf_counter() - started

    def close(self) -> None:
        """Stop the thread. What was not flushed is lost. This may be called twice."""
        self._error = self._error or StorageError("the buffer was closed")  # what is queued does nothing any more
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _evict(self, partition: int) -> None:
        slot = int(self._slot[partition])
        if partition in self._dirty:
            self._dirty.remove(partition)
            self._write(partition, slot)
        self._slot[partition] = -1
        self._free.append(slot)  # a later read into it waits in the thread's queue, behind the write

    def _write(self, partition: int, slot: int) -> None:
        generation = self._generation

        def write() -> None:
            started = time.perf_counter()
            self.moved.written_bytes += self.files.write(partition, generation, self._of(partition, slot))
            self.moved.write_seconds += time.perf_counter() - started

        self._writing.append(self._submit(write))

    def _read_ahead(self, partition: int) -> None:
        slot = self._free.pop()

        def read() -> None:
            started = time.perf_counter()
            self.moved.read_bytes += self.files.read(partition, self._of(partition, slot))
            if self.fixed is not None:
                files, column = self.fixed
                self.moved.read_bytes += files.read(partition, self._rows_of(partition, slot, [column]))
            self.moved.read_seconds += time.perf_counter() - started

        self._ahead[partition] = slot, self._submit(read)
        self.most_held = max(self.most_held, self.slots - len(self._free))

    def _submit(self, job: Callable[[], None]) -> Future[None]:
        def guarded() -> None:
            if self._error is not None:
                raise self._error
            try:
                job()
            except BaseException as error:
                self._error = error
                raise

        return self._thread.submit(guarded)

    def _of(self, partition: int, slot: int) -> list[Tensor]:
        return self._rows_of(partition, slot, self.columns)

    def _rows_of(self, partition: int, slot: int, columns: Sequence[Tensor]) -> list[Tensor]:
        start = slot * self._placement.capacity
        return [column[start : start + self._placement.count(partition)] for column in columns]

    def _check_written(self, wait: bool) -> None:
        waiting = []
        for writing in self._writing:
            if wait or writing.done():
                writing.result()
            else:
                waiting.append(writing)
        self._writing = waiting
