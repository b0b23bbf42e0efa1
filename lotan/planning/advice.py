"""Settings with which a run would need less memory than with those that were given: advice for a limit that is too low."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from lotan.errors import LotanError
from lotan.memory.limit import Advice, MemoryLimit
from lotan.settings.config import TrainerConfig
from lotan.settings.regimes import SHUFFLED, MiniBatch
from lotan.settings.tasks import ALL, LinkPrediction
from planner.shares import MIB

MANY_NEGATIVES = 1000  # half of them are tried first in place of all vertices

Needs = Callable[[TrainerConfig], int]
"""A function that returns the least limit, in bytes, under which a run with some settings would be accepted."""

Try = tuple[str, TrainerConfig]
"""A change in words, and the settings after it."""


def advice_on_processes(config: TrainerConfig, needs: Needs) -> list[Advice]:
    """Return the settings of processes that were given, and that a run would need less memory without.

    Args:
        config: The settings, whose memory limit is too low.
        needs: The function that is asked about other settings.
    """
    least = needs(config)
    without = {
        "worker_memory": replace(config, worker_memory=None),
        "chunk_rows": replace(config, chunk_rows=None),
        "partitions": replace(config, partitions=None),
    }
    given = [name for name in without if getattr(config, name) is not None]
    found = [(f"leave {name} out", needs(without[name])) for name in given]
    if config.workers is not None:
        fewer = [(f"give workers={number}", replace(config, workers=number)) for number in _halves(config.workers)]
        found += _first_that_fits(config, needs, fewer)
    return [(words, needed) for words, needed in found if needed + MIB < least]


def advice_on_batches(config: TrainerConfig, needs: Needs) -> list[Advice]:
    """Return the settings of batches and of negatives with which a run would be accepted under its limit.

    Args:
        config: The settings, whose memory limit is too low.
        needs: The function that is asked about other settings.
    """
    tries = [*_of_regime(config), *_of_task(config)]
    return [advice for some in tries for advice in _first_that_fits(config, needs, some)]


def _of_regime(config: TrainerConfig) -> Iterator[Iterable[Try]]:
    regime = config.regime
    if not isinstance(regime, MiniBatch):
        return
    if regime.is_stored and regime.stored_sizes is not None:
        name = regime.order.partition("(")[0]
        yield [(f"give order={name!r}, without sizes", replace(config, regime=replace(regime, order=name)))]
    if regime.is_fixed:
        yield [("draw other batches in each epoch", replace(config, regime=replace(regime, order=SHUFFLED)))]
    yield (
        (f"give batch_size={number}", replace(config, regime=replace(regime, batch_size=number)))
        for number in _halves(regime.batch_size)
    )


def _of_task(config: TrainerConfig) -> Iterator[Iterable[Try]]:
    task = config.task
    if isinstance(task, LinkPrediction):
        most = MANY_NEGATIVES if task.negatives == ALL else int(task.negatives)
        yield (
            (f"give negatives={number}", replace(config, task=replace(task, negatives=number)))
            for number in _halves(most)
        )


def _halves(number: int) -> Iterator[int]:
    """Yield half of a number, rounded down, and half of that, until 1.

    >>> list(_halves(20))
    [10, 5, 2, 1]
    """
    while number > 1:
        number //= 2
        yield number


def _first_that_fits(config: TrainerConfig, needs: Needs, tries: Iterable[Try]) -> list[Advice]:
    """Return the first change that makes a run fit into the limit, with its least limit; [] if none does."""
    limit = MemoryLimit.of(config).bytes
    for words, other in tries:
        with suppress(LotanError):  # such settings do not go together
            needed = needs(other)
            if limit is not None and needed <= limit:
                return [(words, needed)]
    return []
