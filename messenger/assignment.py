"""The assignment of partitions to workers. It stays the same epoch after epoch, so that static rows are sent once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import xxhash


class Assignment:
    """Assigns partitions to workers by name, so that live workers' numbers of partitions of a run differ by one at most.

    A partition moves when its worker is gone, or when another worker has at least two partitions fewer. Among workers
    with equally many partitions, rendezvous hashing decides. A worker that comes back under its name therefore gets its
    old partitions again, as far as balance allows.
    """

    def __init__(self) -> None:
        self._workers: dict[str, dict[int, str]] = {}  # run -> partition -> worker

    def choose(self, run: str, partition: int, live: Collection[str]) -> str | None:
        """Return the name of a partition's worker, or None if no worker is live."""
        if not live:
            return None
        assigned = self._workers.setdefault(run, {})
        load = Counter(worker for worker in assigned.values() if worker in live)
        current = assigned.get(partition)
        best = min(live, key=lambda name: (load[name], -_weight(partition, name)))
        if current is None or current not in live or load[current] - load[best] >= 2:
            assigned[partition] = current = best
        return current

    def forget(self, run: str) -> None:
        """Drop the assignments of a run."""
        self._workers.pop(run, None)


def _weight(partition: int, worker: str) -> int:
    return xxhash.xxh64_intdigest(f"{partition}/{worker}".encode())
