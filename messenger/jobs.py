"""The work that the messenger moves: the chunks of a Dealer and the handler of a worker.

A `PipeJob` names one pass of one stage over one partition, and a `ChunkKey` names one micro-batch of it. Neither has an
attempt number, because two attempts of a partition are the same work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from messenger.room import Room

GRADIENT = "gradient/"
"""The prefix of a gradient's name. Gradients are summed over a partition's chunks."""

STATISTICS, EVALUATION = "statistics", "evaluation"
"""The names of the other tensors that are summed: loss and metrics of training, and loss and metrics of an evaluation."""


def is_summed(name: str) -> bool:
    """Return True if a handler's tensor of that name is summed over chunks, False if it is returned with its chunk."""
    return name in (STATISTICS, EVALUATION) or name.startswith(GRADIENT)


@dataclass(frozen=True)
class PipeJob:
    """One pass of one stage over one partition. It is the key of a commit.

    `pass_number` is the number that `CoordinatorLink.begin` was given, so it identifies the parameters. An evaluation after
    the optimizer step reads other parameters, so it is another pass, though it belongs to the same epoch of the training.
    On the wire and in the texts of errors, this number is called "epoch". Random numbers depend on the training's own
    count of epochs, which the `settings` of `begin` carry.
    """

    run: str
    pass_number: int
    stage: str
    mode: str
    partition: int
    accumulates: bool = field(
        default=True, compare=False
    )  # False if nothing is summed: a returned chunk is never replayed

    def __str__(self) -> str:
        return f"stage {self.stage!r} ({self.mode}), partition {self.partition}, epoch {self.pass_number} of run {self.run!r}"


@dataclass(frozen=True)
class ChunkKey:
    """The name of one micro-batch, which is a contiguous run of rows of one partition."""

    run: str
    pass_number: int
    stage: str
    mode: str
    partition: int
    chunk: int  # the chunk's index in the partition
    first_row: int  # the chunk's first row in the partition
    rows: int  # number of rows


@dataclass(frozen=True)
class OutgoingChunk:
    """Rows for a worker. Their arrays must not change until the chunk is returned and its group is closed.

    `static` and `epoch_kept` name tensors that the worker may have kept from an earlier chunk with the same run,
    partition and index. Such a tensor is offered by its checksum first, and sent if the worker asks for it. The worker
    replaces a kept tensor when one with the same name and shape but other content is offered, so any tensor may be
    named. The worker drops an `epoch_kept` tensor when the next pass begins, and a static one with the run.

    `by_row` names tensors whose rows the worker may have kept from any chunk, by their keys: see `messenger.kept_rows`.
    Each of them has the chunk's rows as its first dimension.
    """

    index: int
    first_row: int
    rows: int
    digest: int  # `messenger.frames.digest` of the vertex ids in order; it is compared with the result's
    tensors: Mapping[str, np.ndarray]
    static: frozenset[str] = frozenset()
    epoch_kept: frozenset[str] = frozenset()
    by_row: frozenset[str] = frozenset()
    row_keys: str = ""  # the name of the tensor that has the key of each row, int64 [rows], if there is `by_row`


@dataclass(frozen=True)
class ReturnedChunk:
    """The result of a chunk. Its arrays are read-only.

    They may lie in shared memory, which other chunks can use once the last array is gone. Drop them soon, so that more
    of the traffic fits there.
    """

    index: int
    first_row: int
    rows: int
    digest: int
    tensors: dict[str, np.ndarray]


class Handler(Protocol):
    """Runs stages on a worker, in one thread. It must not write to the arrays that it takes, nor change those it returned.

    A chunk's arrays may lie in a Dealer's shared memory. They are valid until `chunk` returns, so a handler that keeps
    one copies it.
    """

    def stage(self, run: str, name: str, program: dict[str, Any]) -> None:
        """Take a stage's program, before the first chunk of that stage."""

    def parameters(self, run: str, pass_number: int, tensors: dict[str, np.ndarray], settings: dict[str, Any]) -> None:
        """Take a pass's parameters, before its first chunk. They replace those of the run's earlier passes."""

    def chunk(self, key: ChunkKey, tensors: dict[str, np.ndarray], room: Room) -> dict[str, np.ndarray]:
        """Run a chunk. The result depends on the arguments, the stage and the pass's parameters alone.

        Args:
            key: the chunk's name.
            tensors: the chunk's arrays by name.
            room: memory for the result. Arrays made in it need not be copied on their way back; its use is optional.

        Returns:
            Arrays by name. Those named "gradient/<parameter>", "statistics" or "evaluation" are summed in float64 over
            the partition and end in `Totals.tensors`. All others return to the Dealer.

        Raises:
            Exception: any error, which is raised in the Dealer as a RemoteError.
        """

    def lacks(self, key: ChunkKey) -> bool:
        """Return True if a chunk cannot be run without its spare tensors.

        Spare tensors are sent only if the worker asks for them. A handler does without them if it has kept the values
        that it computed from them earlier. The question is asked only for chunks that have spare tensors.
        """

    def forget(self, run: str) -> None:
        """Drop all data of a run, which may be one that was never seen."""
