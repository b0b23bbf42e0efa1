"""The work that the messenger moves: what a Dealer is given, what a worker's handler sees, what is committed.

Rows find their names in `PipeJob` (one pass of one stage over one partition) and `ChunkKey` (one micro-batch of it).
Neither holds an attempt number: two attempts of a partition are the same work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from messenger.room import Room

GRADIENT = "gradient/"
"""Prefix of the names under which a handler returns what is summed over a partition's chunks."""

STATISTICS, EVALUATION = "statistics", "evaluation"
"""The other names that are summed: loss and metrics, of training and of an evaluation."""


def is_summed(name: str) -> bool:
    """Whether a handler's tensor of that name is summed over chunks instead of returned with its chunk."""
    return name in (STATISTICS, EVALUATION) or name.startswith(GRADIENT)


@dataclass(frozen=True)
class PipeJob:
    """One pass of one stage over one partition: the key of a commit.

    `pass_number` identifies the parameters: it is the number that `CoordinatorLink.begin` was given. An evaluation after the
    optimizer step reads other parameters, so it is another pass, though it belongs to the same epoch of the training. (On the
    wire and in texts of errors this number is called "epoch"; random numbers count the training's epochs, which go through
    the `settings` of `begin`.)
    """

    run: str
    pass_number: int
    stage: str
    mode: str
    partition: int
    accumulates: bool = field(default=True, compare=False)  # False: nothing to sum, so a returned chunk needs no replay

    def __str__(self) -> str:
        return f"stage {self.stage!r} ({self.mode}), partition {self.partition}, epoch {self.pass_number} of run {self.run!r}"


@dataclass(frozen=True)
class ChunkKey:
    """One micro-batch: a contiguous run of rows of one partition."""

    run: str
    pass_number: int
    stage: str
    mode: str
    partition: int
    chunk: int  # its index in the partition
    first_row: int  # in the partition
    rows: int


@dataclass(frozen=True)
class OutgoingChunk:
    """Rows for a worker. Arrays must not change until the chunk has come back and its group is closed.

    `static` and `epoch_kept` name tensors that the worker may still have from an earlier chunk with this run,
    partition and index under the same tensor name: these are offered by checksum first and sent when the worker asks.
    A kept tensor is replaced when one of its shape and other content is offered, so both sets are safe for anything;
    they differ in when the worker lets go: `epoch_kept` ones at the first sign of the next pass.
    """

    index: int
    first_row: int
    rows: int
    digest: int  # of the vertex ids in order, see `messenger.frames.digest`; comes back with the result and is compared
    tensors: Mapping[str, np.ndarray]
    static: frozenset[str] = frozenset()
    epoch_kept: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ReturnedChunk:
    """What a worker made of a chunk. Its arrays are read-only.

    They may lie in shared memory, which is free for other chunks when the last array is gone: not to keep many for long
    keeps more of the traffic there.
    """

    index: int
    first_row: int
    rows: int
    digest: int
    tensors: dict[str, np.ndarray]


class Handler(Protocol):
    """What runs stages on a worker, in one thread. Arrays given are read-only; those returned must not change.

    A chunk's arrays may lie in a Dealer's shared memory: they are good until `chunk` returns, and copied to be kept.
    """

    def stage(self, run: str, name: str, program: dict[str, Any]) -> None:
        """Take a stage's program, before the first chunk of that stage."""

    def parameters(self, run: str, pass_number: int, tensors: dict[str, np.ndarray], settings: dict[str, Any]) -> None:
        """Take a pass's parameters, before its first chunk. Those of the run's earlier passes are not needed then."""

    def chunk(self, key: ChunkKey, tensors: dict[str, np.ndarray], room: Room) -> dict[str, np.ndarray]:
        """Run a chunk: a pure function of its arguments, the stage and the pass's parameters.

        `room` has memory from which a result need not be copied; it may be used, or left.

        Tensors named "gradient/<parameter>", "statistics" or "evaluation" are summed in float64 over the partition and
        end in `Totals.tensors`; all others return to the Dealer. Whatever it raises is raised in the Dealer.
        """

    def lacks(self, key: ChunkKey) -> bool:
        """Whether a chunk cannot be run without the tensors that its Dealer would rather not send.

        Asked only for chunks that have such: of what these hold, the handler may have kept what it made of it earlier.
        """

    def forget(self, run: str) -> None:
        """Drop all that belongs to a run. May name a run never seen."""
