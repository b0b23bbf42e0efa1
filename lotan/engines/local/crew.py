"""Threads that share the work on a column: torch and numpy leave Python's lock while they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

import torch

from planner.chunks import sharing_threads

T = TypeVar("T")


class Crew:
    """As many threads as cores: they share tasks, each running torch's operators alone, or torch shares each operator.

    Args:
        threads: how many, the calling one among them; None: as many as torch would use in this thread.
        sharing: False leaves all tasks to the calling thread, and each operator to torch's threads. So are tasks in any case
            that are too few to be shared evenly: see `sharing_threads`.
    """

    def __init__(self, threads: int | None = None, sharing: bool = True) -> None:
        self.threads = threads or torch.get_num_threads()
        self.sharing = sharing
        self._others: ThreadPoolExecutor | None = None

    def run(self, tasks: int, work: Callable[[int], T], chunks: int | None = None) -> list[T]:
        """`work` on each number below `tasks`, whoever comes first; results in the order of numbers.

        Args:
            tasks: how many.
            work: of one of them.
            chunks: that all tasks are together, where some are several.

        Raises:
            BaseException: what the work raised, if several did that with the smallest number.
        """
        if not self.sharing or sharing_threads(chunks or tasks, self.threads) == 1:
            with torch_threads(self.threads):
                return [work(number) for number in range(tasks)]
        results: dict[int, T] = {}
        failures: dict[int, BaseException] = {}
        numbers = count()

        def toil() -> None:
            while (number := next(numbers)) < tasks and not failures:
                try:
                    results[number] = work(number)
                except BaseException as failure:
                    failures[number] = failure

        with torch_threads(1):
            helpers = [self._pool.submit(toil) for _ in range(self.threads - 1)]
            toil()
            for helper in helpers:
                helper.result()
        if failures:
            raise failures[min(failures)]
        return [results[number] for number in range(tasks)]

    @property
    def _pool(self) -> ThreadPoolExecutor:
        if self._others is None:
            self._others = ThreadPoolExecutor(
                max(1, self.threads - 1), "lotan-local", initializer=torch.set_num_threads, initargs=(1,)
            )
        return self._others

    def close(self) -> None:
        """Let the threads end."""
        if self._others is not None:
            self._others.shutdown()
            self._others = None


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Has torch use so many threads for the calling thread's operators."""
    before = torch.get_num_threads()
    if before == number:
        yield
        return
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
