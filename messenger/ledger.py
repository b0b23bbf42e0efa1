"""The ledger of commits. It counts the results of each partition once, however many attempts report them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from messenger.errors import ConflictError, MessengerError, StaleEpochError
from messenger.jobs import PipeJob
from messenger.sums import Sums


@dataclass(frozen=True)
class Commit:
    """The results of one attempt of a partition."""

    job: PipeJob
    # float64 sums over the partition, by "gradient/<parameter>", "statistics" and "evaluation"
    tensors: dict[str, np.ndarray]
    count: int  # number of chunks
    rows: int  # number of rows
    checksum: int  # checksum of all results and sums
    bytes_sent: int  # bytes that the Dealer sent from its first chunk to before this commit
    bytes_received: int  # bytes that it received in that time
    bytes_shared: int = 0  # the part of both that went through shared memory


@dataclass(frozen=True)
class Totals:
    """The sum of several commits, in the order in which their jobs were named."""

    tensors: dict[str, np.ndarray]  # float64
    chunks: int
    rows: int
    bytes_sent: int
    bytes_received: int
    bytes_shared: int  # the part of both that went through shared memory


class Ledger:
    """The commits of each run's open epoch. It is not thread-safe.

    The first commit of a job counts. A later commit of the same job must be equal and is not added.
    """

    def __init__(self) -> None:
        self._passes: dict[str, int] = {}
        self._commits: dict[PipeJob, Commit] = {}
        self._conflicts: dict[str, ConflictError] = {}  # by run; a conflict in its open pass

    def begin(self, run: str, pass_number: int) -> None:
        """Open a pass of a run, and drop all earlier commits of the run."""
        self._drop(run)
        self._passes[run] = pass_number

    def pass_number(self, run: str) -> int:
        """Return the number of a run's open pass, or -1 if none is open."""
        return self._passes.get(run, -1)

    def commit(self, commit: Commit) -> bool:
        """Enter a commit. Return True if it is the job's first.

        Raises:
            StaleEpochError: the commit's pass is not open.
            ConflictError: another attempt had other results. From then on, `totals` raises this error as well.
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
        """Return the jobs that have not been committed."""
        return [job for job in jobs if job not in self._commits]

    def check(self, run: str) -> None:
        """Raise the ConflictError of a run's open pass, if there was a conflict."""
        if run in self._conflicts:
            raise self._conflicts[run]

    def totals(self, jobs: Iterable[PipeJob]) -> Totals:
        """Return the sum of the jobs' commits, in the order given.

        If the caller sorts the jobs, the sum does not depend on the order in which they were committed.

        Raises:
            ConflictError: two attempts of a partition had different results.
            MessengerError: a job has not been committed.
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
        """Drop all commits of a run and its open pass."""
        self._drop(run)
        self._passes.pop(run, None)

    def _drop(self, run: str) -> None:
        self._commits = {job: commit for job, commit in self._commits.items() if job.run != run}
        self._conflicts.pop(run, None)
