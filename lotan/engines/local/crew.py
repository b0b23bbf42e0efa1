"""Threads that share the work on a column: torch and numpy release Python's lock while they compute."""

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
    """A thread for each core.

    Either each thread takes a task at a time, and runs its operators alone. Or the calling thread runs one task after the
    other, and torch's threads share each operator.

    Args:
        threads: The number of threads, including the calling one; None: as many as torch would use in this thread.
        sharing: False to leave all tasks to the calling thread, and each operator to torch's threads. Tasks that are
            too few to be shared evenly are always left to it: see `sharing_threads`.
    """

    def __init__(self, threads: int | None = None, sharing: bool = True) -> None:
        self.threads = threads or torch.get_num_threads()
        self.sharing = sharing
        self._others: ThreadPoolExecutor | None = None

    def run(self, tasks: int, work: Callable[[int], T], chunks: int | None = None) -> list[T]:
        """Call `work` with each number below `tasks`, in any order and thread, and return the results in the order of numbers.

        Args:
            tasks: The number of tasks.
            work: The function of a task's number.
            chunks: The number of chunks in all tasks, if a task has several.

        Raises:
            BaseException: The error of the failed task with the smallest number.
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
    """Set the number of threads that torch uses for the calling thread's operators, within a block."""
    before = torch.get_num_threads()
    if before == number:
        yield
        return
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
