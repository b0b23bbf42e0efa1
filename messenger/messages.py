"""Pure functions that make a Dealer's messages from its book-keeping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from messenger.fields import Kind
from messenger.frames import Message, encode, tensor_checksum
from messenger.jobs import OutgoingChunk, PipeJob
from messenger.kept_rows import LEAST_ROW_BYTES, ROW_CHECKSUMS, layout_of, row_bytes, row_checksums
from messenger.settings import Limits
from messenger.spaces import Space
from messenger.stream import SendChunk, SendEnd, Stream


@dataclass
class Moved:
    """The bytes that a Dealer has moved for a partition so far."""

    sent: int = 0
    received: int = 0
    shared: int = 0  # the part of both that went through shared memory


def chunk_message(
    job: PipeJob,
    item: SendChunk,
    ticket: int,
    seq: int,
    limits: Limits,
    reply: Space | None,
    by_row: bool = False,
) -> Message:
    """Return a CHUNK. Tensors that the worker may have kept are offered by checksum, the others travel along.

    Args:
        job: the pass and the partition.
        item: the chunk and its group.
        ticket: the number of the attempt.
        seq: the number of the message in it.
        limits: the receiver's limits.
        reply: shared memory for the result; None: it travels inline.
        by_row: True if the chunk's tensors `by_row` are offered row by row.
    """
    chunk = item.chunk
    rows = {name: tensor for name, tensor in chunk.tensors.items() if by_row and name in chunk.by_row}
    kept = chunk.static | chunk.epoch_kept | rows.keys()
    header = _job_fields(job) | {
        "ticket": ticket,
        "seq": seq,
        "group": item.group,
        "chunk": chunk.index,
        "first_row": chunk.first_row,
        "rows": chunk.rows,
        "digest": chunk.digest,
        "offers": [_offer(chunk, name, limits) for name in chunk.tensors if name in kept and name not in rows],
    }
    if reply is not None:
        header["reply"] = [reply.region, reply.offset, reply.memory.nbytes]
    along = {name: tensor for name, tensor in chunk.tensors.items() if name not in kept}
    if rows:
        header |= {
            "row_keys": chunk.row_keys,
            "row_offers": [[name, tensor.dtype.name, list(tensor.shape)] for name, tensor in rows.items()],
        }
        along[ROW_CHECKSUMS] = row_checksums(rows, layout_of(rows))
    return Message(Kind.CHUNK, header, along)


def may_offer_rows(chunk: OutgoingChunk) -> bool:
    """Return True if a chunk has rows that are worth a question before they are sent."""
    return row_bytes({name: chunk.tensors[name] for name in chunk.by_row}) >= LEAST_ROW_BYTES


def end_message(item: SendEnd, ticket: int, seq: int) -> Message:
    """Return the END of a group."""
    return Message(Kind.END, {"ticket": ticket, "seq": seq, "group": item.group, "count": item.count})


def commit_message(stream: Stream, ticket: int, moved: Moved) -> Message:
    """Return the COMMIT of a partition's results."""
    header = _job_fields(stream.job) | {
        "ticket": ticket,
        "count": stream.count,
        "rows": stream.rows,
        "checksum": stream.checksum,
        "bytes_sent": moved.sent,
        "bytes_received": moved.received,
        "bytes_shared": moved.shared,
    }
    return Message(Kind.COMMIT, header, stream.sums.tensors)


def _job_fields(job: PipeJob) -> dict[str, Any]:
    return {
        "run": job.run,
        "epoch": job.pass_number,
        "stage": job.stage,
        "mode": job.mode,
        "partition": job.partition,
    }


def _offer(chunk: OutgoingChunk, name: str, limits: Limits) -> list[Any]:
    """Return the offer [name, dtype, shape, checksum, kept for the epoch only] of a tensor."""
    tensor = chunk.tensors[name]
    frame = encode(Message(Kind.DATA, {"what": "tensors"}, {name: tensor}), limits)[1]
    return [name, tensor.dtype.name, list(tensor.shape), tensor_checksum(frame), name in chunk.epoch_kept]
