"""Which worker gets which partition: the same one epoch after epoch, so that static rows are sent once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import xxhash


class Assignment:
    """Partitions to workers by name, balanced: no live worker holds two partitions of a run more than another.

    A partition moves when its worker is gone or another has at least two fewer; among equals, rendezvous hashing
    decides, so that a worker which comes back under its name is given what it had, as far as balance allows.
    """

    def __init__(self) -> None:
        self._workers: dict[str, dict[int, str]] = {}  # run -> partition -> worker

    def choose(self, run: str, partition: int, live: Collection[str]) -> str | None:
        """The worker for a partition, or None if there is none at all."""
        if not live:
            return None
        held = self._workers.setdefault(run, {})
        load = Counter(worker for worker in held.values() if worker in live)
        current = held.get(partition)
        best = min(live, key=lambda name: (load[name], -_weight(partition, name)))
        if current is None or current not in live or load[current] - load[best] >= 2:
            held[partition] = current = best
        return current

    def forget(self, run: str) -> None:
        """Drop what is known of a run."""
        self._workers.pop(run, None)


def _weight(partition: int, worker: str) -> int:
    return xxhash.xxh64_intdigest(f"{partition}/{worker}".encode())
