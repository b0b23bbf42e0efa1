"""The settings that all models of a search share, as options of `lotan train`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from lotan.settings.class_weights import weights_in_words
from lotan.settings.config import MEMBER_SETTINGS, TrainerConfig
from lotan.settings.regimes import MiniBatch, Regime
from lotan.settings.tasks import LinkPrediction

RESULTS = (
    "checkpoint_dir",
    "checkpoint_batches",
    "storage_dir",
    "resume",
    "resume_with",
    "log_dir",
    "mlflow",
    "progress",
)
"""Settings that determine where results are written. A trained model does not depend on them."""
UNSAID = ("chunk_rows", "penalty")
"""Settings for which `lotan train` has no option."""


def words_in_common(config: TrainerConfig, engine: str | None = None) -> tuple[str, ...] | None:
    """Return the options for all settings that differ from their defaults, or None if a setting has no option.

    Args:
        config: the user's settings.
        engine: the engine that was chosen for "auto", because another one might be chosen for one model alone. None
            leaves the choice to `lotan train` (default: None).

    >>> words_in_common(TrainerConfig(engine="rows", rgb=False, disable=["push_down"], master="local[2]"))
    ('--engine', 'rows', '--disable', 'push_down', '--no-rgb', '--master', 'local[2]')
    >>> words_in_common(TrainerConfig(router="tcp://host:5570"), "local")
    ('--engine', 'local')
    >>> words_in_common(TrainerConfig(chunk_rows=512))
    """
    if any(getattr(config, name) is not None for name in UNSAID) or callable(config.loss):
        return None
    if isinstance(config.task, LinkPrediction) and not isinstance(config.task.decoder, str):
        return None
    defaults, found = TrainerConfig(), []
    idle = ("router", "keys") if engine == "local" else ()  # settings that "auto" may have and "local" refuses
    for name in (item.name for item in fields(TrainerConfig)):
        value = (engine if name == "engine" else None) or getattr(config, name)
        if name == "class_weights" and value is not None:
            value = weights_in_words(value)
        if name == "metrics" or (name == "threshold" and isinstance(value, Iterable)):
            value = ",".join(map(str, value))
        if name in (*MEMBER_SETTINGS, *RESULTS, *UNSAID, *idle) or value in (getattr(defaults, name), ""):
            continue
        if name == "regime":
            found += _words_of_regime(value)
        elif isinstance(value, LinkPrediction):
            found += _words_of_task(value)
        elif name == "rgb":
            found.append("--no-rgb")
        else:
            several = value if name == "disable" else [value]
            found += [word for one in several for word in (f"--{name.replace('_', '-')}", str(one))]
    return tuple(found)


def _words_of_regime(regime: Regime | str) -> list[str]:
    if not isinstance(regime, MiniBatch):
        return []
    fanouts = ",".join(map(str, regime.fanouts)) or "none"
    words = {"--batch-size": regime.batch_size, "--fanouts": fanouts, "--sampling-seed": regime.seed}
    return [
        *(word for name, value in words.items() for word in (name, str(value))),
        *["--fixed-batches"] * regime.is_fixed,
        *(["--order", regime.order] if regime.is_stored else []),
    ]


def _words_of_task(task: LinkPrediction) -> list[str]:
    """Return the options of a link task that differ from their defaults."""
    own, defaults = {"loss": "link-loss", "fractions": "link-fractions", "seed": "link-seed"}, LinkPrediction()
    found = ["--task", "link"]
    for item in fields(LinkPrediction):
        value: Any = getattr(task, item.name)
        if value == getattr(defaults, item.name):
            continue
        found.append(f"--{own.get(item.name, item.name).replace('_', '-')}")
        if item.name == "exclude_targets":
            found.append("yes" if value else "no")
        elif item.name == "fractions":
            found.append(",".join(map(str, value)))
        elif item.name != "filtered":
            found.append(str(value))
    return found
