"""The row tables of a run, from before its first epoch to its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from lotan.borders import translated
from lotan.memory.free import free_memory
from lotan.settings.byte_sizes import byte_count
from lotan.settings.config import TrainerConfig
from lotan.settings.row_tables import addresses_of
from lotan.tables.pipeline import RowPipeline
from lotan.tables.processes import TableProcesses
from lotan.tables.records import Records
from lotan.tables.store import TableStore
from lotan.training.learner import Learner
from messenger.endpoint import Endpoint
from messenger.keys import keyed_endpoint
from messenger.settings import Settings

SETTINGS = Settings(result_seconds=120.0)
"""The deadlines of the trainer. A table that is started again takes about a second."""


@contextmanager
def row_tables(learner: Learner, config: TrainerConfig) -> Iterator[RowPipeline | None]:
    """Start the row tables of a run, or connect to those that it names, and fill them with the learner's rows.

    Args:
        learner: The learner, whose model has learned rows.
        config: The settings of the run. Without `tables`, there is no pipeline.

    Raises:
        ConfigurationError: If a table cannot hold its part of the rows.
        EngineError: If a table does not start, or does not answer.
    """
    if config.tables is None:
        yield None
        return
    parameters = dict(learner.model.named_parameters())
    learned = {name: parameters[name] for name in learner.job.train.learned}
    with ExitStack() as opened:
        endpoints = _endpoints(config, opened)
        store = opened.enter_context(
            closing(TableStore(endpoints, Records(learned, learner.state.optimizer), SETTINGS))
        )
        store.fill()
        yield opened.enter_context(closing(RowPipeline(store, config.asynchrony, SETTINGS.result_seconds)))


@translated()
def _endpoints(config: TrainerConfig, opened: ExitStack) -> list[Endpoint]:
    if addresses := addresses_of(config.tables):
        keys = None if config.keys is None else Path(config.keys)
        return [keyed_endpoint(address, keys) for address in addresses]
    assert isinstance(config.tables, int)  # the settings were checked
    limit = free_memory() // config.tables
    if config.table_memory is not None:
        limit = byte_count("table_memory", config.table_memory)
    return opened.enter_context(closing(TableProcesses(config.tables, limit))).endpoints
