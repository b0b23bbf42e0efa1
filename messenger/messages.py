"""The messages that a Dealer makes of its book-keeping. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from messenger.fields import Kind
from messenger.frames import Message, encode, tensor_checksum
from messenger.jobs import OutgoingChunk, PipeJob
from messenger.settings import Limits
from messenger.spaces import Space
from messenger.stream import SendChunk, SendEnd, Stream


@dataclass
class Moved:
    """Bytes of a partition so far."""

    sent: int = 0
    received: int = 0
    shared: int = 0  # of both, those that went through shared memory


def chunk_message(job: PipeJob, item: SendChunk, ticket: int, seq: int, limits: Limits, reply: Space | None) -> Message:
    """A CHUNK: what the worker may have kept is offered by checksum, the rest travels along."""
    chunk = item.chunk
    kept = chunk.static | chunk.epoch_kept
    header = _job_fields(job) | {
        "ticket": ticket,
        "seq": seq,
        "group": item.group,
        "chunk": chunk.index,
        "first_row": chunk.first_row,
        "rows": chunk.rows,
        "digest": chunk.digest,
        "offers": [_offer(chunk, name, limits) for name in chunk.tensors if name in kept],
    }
    if reply is not None:
        header["reply"] = [reply.region, reply.offset, reply.memory.nbytes]
    along = {name: tensor for name, tensor in chunk.tensors.items() if name not in kept}
    return Message(Kind.CHUNK, header, along)


def end_message(item: SendEnd, ticket: int, seq: int) -> Message:
    """An END."""
    return Message(Kind.END, {"ticket": ticket, "seq": seq, "group": item.group, "count": item.count})


def commit_message(stream: Stream, ticket: int, moved: Moved) -> Message:
    """A COMMIT of all that a partition came to."""
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
    """[name, dtype, shape, checksum, kept for the epoch only]."""
    tensor = chunk.tensors[name]
    frame = encode(Message(Kind.DATA, {"what": "tensors"}, {name: tensor}), limits)[1]
    return [name, tensor.dtype.name, list(tensor.shape), tensor_checksum(frame), name in chunk.epoch_kept]
