"""Deadlines, windows and limits. Every wait of the messenger ends at one of these."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limits:
    """What a message may be. Checked against its header before anything is allocated for its content."""

    header_bytes: int = 16 << 20  # the msgpack header of a message; stage programs travel in it
    frame_bytes: int = 1 << 30  # one tensor; also what a socket accepts for one frame before it closes the connection
    message_bytes: int = 4 << 30  # all tensors of a message
    tensors: int = 4096  # tensors in a message: a model's parameters travel in one
    dimensions: int = 8  # of a tensor
    text: int = 65536  # UTF-8 bytes of one string in a header
    items: int = 16384  # elements of one list or map in a header


@dataclass(frozen=True)
class Settings:
    """How long to wait and how much to have under way. Seconds and bytes."""

    credits: int = 4  # chunks that a Dealer may have in flight; the Router's value holds for all its Dealers
    group_chunks: int = 16  # chunks whose gradients are summed on a worker before the Dealer takes them over
    heartbeat_seconds: float = 0.5  # between two heartbeats; the Router's value holds for all its peers
    missed_heartbeats: int = 20  # in a row without a sign of life, after which a peer counts as dead
    connect_seconds: float = 15.0  # for the Router's first answer
    worker_seconds: float = 60.0  # the Router keeps a chunk this long while no worker is connected
    result_seconds: float = 600.0  # for the next result of a worker that is alive: longer than the slowest chunk
    fetch_seconds: float = 60.0  # a worker waits this long for a stage or parameters from the coordinator
    commit_seconds: float = 60.0  # a Dealer waits this long for the coordinator's acknowledgement
    max_replays: int = 8  # of an open group in one partition, after workers were lost, before the Dealer gives up
    linger_seconds: float = 2.0  # a closing socket tries this long to deliver what it was given
    high_water_mark: int = 1024  # messages queued per connection in ZeroMQ; credits keep it far from that
    backlog: int = 16384  # messages that the Router queues for a peer beyond that before it gives the peer up
    kept_bytes: int = 4 << 30  # static and kept tensors on a worker; the least recently used are dropped beyond it
    shared_bytes: int = 64 << 20  # of shared memory that a Dealer may take; 0: none, and a worker with 0 maps none
    shared_directory: str = "/dev/shm"  # where a Dealer takes it: a file system in memory
    limits: Limits = field(default_factory=Limits)
