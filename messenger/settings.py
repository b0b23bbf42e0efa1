"""Deadlines, windows and limits. Every wait of the messenger ends at one of these."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limits:
    """The largest message. A header is checked against these limits before memory is allocated for the tensors."""

    header_bytes: int = 16 << 20  # the msgpack header of a message; stage programs travel in it
    frame_bytes: int = 1 << 30  # one tensor; a socket closes a connection that sends a longer frame
    message_bytes: int = 4 << 30  # all tensors of a message
    tensors: int = 4096  # tensors in a message; all parameters of a model travel in one message
    dimensions: int = 8  # dimensions of a tensor
    text: int = 65536  # UTF-8 bytes of one string in a header
    items: int = 16384  # elements of one list or map in a header


@dataclass(frozen=True)
class Settings:
    """The deadlines (seconds) and the amounts of work and memory (bytes) of all parts of the messenger."""

    credits: int = 4  # chunks that a Dealer may have in flight; the Router's value holds for all its Dealers
    group_chunks: int = 16  # chunks whose gradients a worker sums before it sends the sums to the Dealer
    heartbeat_seconds: float = 0.5  # time between two heartbeats; the Router's value holds for all its peers
    missed_heartbeats: int = 20  # a peer without a sign of life for more heartbeats in a row than this counts as lost
    connect_seconds: float = 15.0  # a peer waits this long for the Router's first answer
    worker_seconds: float = 60.0  # the Router keeps a chunk this long while no worker is connected
    result_seconds: float = 600.0  # a Dealer waits this long for the next result: it must exceed the slowest chunk
    fetch_seconds: float = 60.0  # a worker waits this long for a stage or parameters from the coordinator
    commit_seconds: float = 60.0  # a Dealer waits this long for the coordinator's acknowledgement
    max_replays: int = 8  # a Dealer gives up on a partition that was sent again more often than this
    linger_seconds: float = 2.0  # a socket that closes tries this long to deliver its last messages
    high_water_mark: int = 1024  # messages that ZeroMQ queues for a connection; credits keep the number far below
    backlog: int = 16384  # messages that the Router itself queues for a slow peer before the peer counts as lost
    kept_bytes: int = 4 << 30  # tensors that a worker keeps; beyond it, the least recently used are dropped
    kept_row_bytes: int = 2 << 30  # the part of kept_bytes for rows of vertices; with 0 none are kept or offered
    offer_shared_rows: bool = False  # True: rows are offered before they are sent even where memory is shared
    shared_bytes: int = 64 << 20  # shared memory that a Dealer may use; 0 for none. A worker with 0 maps none
    shared_directory: str = "/dev/shm"  # the directory of a Dealer's shared memory, in a file system in memory
    limits: Limits = field(default_factory=Limits)
