"""What the models of a search have in common, as options of `lotan train`."""

from __future__ import annotations

from dataclasses import fields

from lotan.batch.members import OWN
from lotan.settings.config import TrainerConfig

RESULTS = ("checkpoint_dir", "resume", "log_dir", "mlflow", "progress")
"""Settings that say where results go: nothing that a model becomes depends on them."""
UNSAID = ("task", "class_weights", "chunk_rows")
"""Settings that `lotan train` has no option for."""


def words_in_common(config: TrainerConfig, engine: str | None = None) -> tuple[str, ...] | None:
    """The options for what is no default; None where there is none for some of it.

    Args:
        config: as asked for.
        engine: what "auto" came to: alone, a model might be given another one. None: it is left to `lotan train`.

    >>> words_in_common(TrainerConfig(engine="rows", rgb=False, disable=["push_down"], master="local[2]"))
    ('--engine', 'rows', '--disable', 'push_down', '--no-rgb', '--master', 'local[2]')
    >>> words_in_common(TrainerConfig(router="tcp://host:5570"), "local")
    ('--engine', 'local')
    >>> words_in_common(TrainerConfig(chunk_rows=512))
    """
    if any(getattr(config, name) is not None for name in UNSAID):
        return None
    defaults, found = TrainerConfig(), []
    idle = ("router", "keys") if engine == "local" else ()  # which "auto" may be given, and "local" refuses
    for name in (item.name for item in fields(TrainerConfig)):
        value = (engine if name == "engine" else None) or getattr(config, name)
        if name in (*OWN, *RESULTS, *UNSAID, *idle) or value == getattr(defaults, name):
            continue
        if name == "rgb":
            found.append("--no-rgb")
        else:
            several = value if name == "disable" else [value]
            found += [word for one in several for word in (f"--{name.replace('_', '-')}", str(one))]
    return tuple(found)
