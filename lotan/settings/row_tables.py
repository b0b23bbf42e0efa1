"""The settings of row tables: how many there are or where, and whether batches read rows while others are computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from lotan.arguments import described
from lotan.errors import ConfigurationError
from lotan.settings.byte_sizes import byte_count
from lotan.settings.regimes import MiniBatch

if TYPE_CHECKING:
    from lotan.settings.config import TrainerConfig

Asynchrony = Literal["optimistic", "plain", "none"]
ASYNCHRONIES: tuple[Asynchrony, ...] = get_args(Asynchrony)


def addresses_of(tables: int | str | None) -> tuple[str, ...]:
    """Return the addresses of tables that were started by hand; none if a run starts its own.

    >>> addresses_of("tcp://127.0.0.1:5571, tcp://127.0.0.1:5572"), addresses_of(2)
    (('tcp://127.0.0.1:5571', 'tcp://127.0.0.1:5572'), ())
    """
    return tuple(one.strip() for one in tables.split(",")) if isinstance(tables, str) else ()


def check_row_tables(config: TrainerConfig) -> None:
    """Check the settings of row tables, alone and with others.

    Raises:
        ConfigurationError: If one is unusable, or does not go with another.
    """
    if config.asynchrony not in ASYNCHRONIES:
        raise ConfigurationError(
            f"asynchrony is {described(config.asynchrony)}; expected {' or '.join(map(repr, ASYNCHRONIES))}"
        )
    if config.table_memory is not None:
        byte_count("table_memory", config.table_memory)
    tables = config.tables
    if tables is None:
        given = "table_memory" if config.table_memory is not None else "asynchrony"
        if config.table_memory is not None or config.asynchrony != ASYNCHRONIES[0]:
            raise ConfigurationError(f"{given} is for learned rows in row tables: give tables too, such as tables=2")
        return
    _check_tables(tables)
    if not isinstance(config.regime, MiniBatch):
        raise ConfigurationError(
            "tables has learned rows that batches read and update, and in full batch an epoch reads all of them at once: leave "
            "tables out, or train with regime=lotan.MiniBatch(...)"
        )
    if config.memory_limit is not None:
        raise ConfigurationError("memory_limit does not count row tables so far: leave it out, and give table_memory")
    if addresses_of(tables) and config.table_memory is not None:
        raise ConfigurationError(
            "table_memory is for tables that the run starts; give `lotan table --memory` to those that you start"
        )


def _check_tables(tables: object) -> None:
    expected = "a number of processes of at least 1, or addresses such as 'tcp://127.0.0.1:5571,tcp://127.0.0.1:5572'"
    count = isinstance(tables, int) and not isinstance(tables, bool) and tables >= 1
    found = addresses_of(tables) if isinstance(tables, str) else ()
    if not count and not (found and all(one.startswith("tcp://") for one in found)):
        raise ConfigurationError(f"tables is {described(tables)}; expected {expected}")
    twice = next((one for one in found if found.count(one) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"tables has the address {twice} twice: a table holds the rows of one part alone")
