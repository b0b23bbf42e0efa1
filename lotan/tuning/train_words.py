"""What the models of a search have in common, as options of `lotan train`."""

from __future__ import annotations

from dataclasses import fields

from lotan.members import OWN
from lotan.settings import TrainerConfig

RESULTS = ("checkpoint_dir", "resume", "log_dir", "mlflow", "progress")
"""Settings that say where results go: nothing that a model becomes depends on them."""
UNSAID = ("task", "class_weights", "chunk_rows")
"""Settings that `lotan train` has no option for."""


def words_in_common(config: TrainerConfig) -> tuple[str, ...] | None:
    """The options for what is no default; None where there is none for some of it.

    >>> words_in_common(TrainerConfig(engine="rows", rgb=False, disable=["push_down"], master="local[2]"))
    ('--engine', 'rows', '--disable', 'push_down', '--no-rgb', '--master', 'local[2]')
    >>> words_in_common(TrainerConfig(chunk_rows=512))
    """
    if any(getattr(config, name) is not None for name in UNSAID):
        return None
    defaults, found = TrainerConfig(), []
    for name in (item.name for item in fields(TrainerConfig)):
        value = getattr(config, name)
        if name in (*OWN, *RESULTS, *UNSAID) or value == getattr(defaults, name):
            continue
        if name == "rgb":
            found.append("--no-rgb")
        else:
            several = value if name == "disable" else [value]
            found += [word for one in several for word in (f"--{name.replace('_', '-')}", str(one))]
    return tuple(found)
