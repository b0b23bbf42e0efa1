"""The ledger of commits: what each partition came to, once, whatever number of attempts reported it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from messenger.errors import ConflictError, MessengerError, StaleEpochError
from messenger.jobs import PipeJob
from messenger.sums import Sums


@dataclass(frozen=True)
class Commit:
    """What one attempt of a partition came to."""

    job: PipeJob
    tensors: dict[
        str, np.ndarray
    ]  # float64: sums over the partition, by "gradient/<parameter>", "statistics", "evaluation"
    count: int  # chunks
    rows: int
    checksum: int
    bytes_sent: int  # by the Dealer, from its first chunk to before this commit
    bytes_received: int
    bytes_shared: int = 0  # of both, those that went through shared memory


@dataclass(frozen=True)
class Totals:
    """The sum of commits, taken in the order in which their jobs were named."""

    tensors: dict[str, np.ndarray]  # float64
    chunks: int
    rows: int
    bytes_sent: int
    bytes_received: int
    bytes_shared: int  # of both, those that went through shared memory


class Ledger:
    """First commit wins. A later one of the same job must be equal, and is not added. Not thread-safe."""

    def __init__(self) -> None:
        self._passes: dict[str, int] = {}
        self._commits: dict[PipeJob, Commit] = {}
        self._conflicts: dict[str, ConflictError] = {}  # by run, of its current pass

    def begin(self, run: str, pass_number: int) -> None:
        """Open a pass; what was committed in earlier ones, or earlier in this one, is dropped."""
        self._drop(run)
        self._passes[run] = pass_number

    def pass_number(self, run: str) -> int:
        """The number of the open pass of a run, -1 for none."""
        return self._passes.get(run, -1)

    def commit(self, commit: Commit) -> bool:
        """Enter a commit; whether it is the job's first.

        Raises:
            StaleEpochError: its pass is not the open one.
            ConflictError: another attempt came to something else. `totals` raises it as well.
        """
        job = commit.job
        if job.pass_number != self.pass_number(job.run):
            raise StaleEpochError(
                f"refused the commit of {job}: open is epoch {self.pass_number(job.run)} (-1: none)",
                stage=job.stage,
                partition=job.partition,
            )
        first = self._commits.setdefault(job, commit)
        if (first.checksum, first.count, first.rows) != (commit.checksum, commit.count, commit.rows):
            self._conflicts[job.run] = ConflictError(
                f"two attempts of {job} came to different results ({first.rows} rows in {first.count} chunks, checksum"
                f" {first.checksum:016x}; {commit.rows} rows in {commit.count} chunks, checksum {commit.checksum:016x}):"
                " the epoch cannot be trusted; is the input or the handler not deterministic?",
                stage=job.stage,
                partition=job.partition,
            )
            raise self._conflicts[job.run]
        return first is commit

    def missing(self, jobs: Iterable[PipeJob]) -> list[PipeJob]:
        """Those that nobody has committed."""
        return [job for job in jobs if job not in self._commits]

    def check(self, run: str) -> None:
        """Raise the conflict of the open pass, if there was one."""
        if run in self._conflicts:
            raise self._conflicts[run]

    def totals(self, jobs: Iterable[PipeJob]) -> Totals:
        """Sum over jobs in the order given: sort them, and the sum does not depend on who was first.

        Raises:
            ConflictError: see `commit`.
            MessengerError: one of them has not committed.
        """
        jobs = list(jobs)
        for run in {job.run for job in jobs}:
            self.check(run)
        if missing := self.missing(jobs):
            raise MessengerError(f"{len(missing)} of {len(jobs)} partitions have not committed, such as {missing[0]}")
        commits = [self._commits[job] for job in jobs]
        sums = Sums()
        for commit in commits:
            sums.add(commit.tensors)
        return Totals(
            sums.tensors,
            sum(commit.count for commit in commits),
            sum(commit.rows for commit in commits),
            sum(commit.bytes_sent for commit in commits),
            sum(commit.bytes_received for commit in commits),
            sum(commit.bytes_shared for commit in commits),
        )

    def forget(self, run: str) -> None:
        """Drop all of a run."""
        self._drop(run)
        self._passes.pop(run, None)

    def _drop(self, run: str) -> None:
        self._commits = {job: commit for job, commit in self._commits.items() if job.run != run}
        self._conflicts.pop(run, None)
