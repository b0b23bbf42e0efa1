"""The search with Optuna's sampler. Several trials are asked for at a time and train as one batch."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lotan.errors import ConfigurationError
from lotan.tuning.axes import Axis
from lotan.tuning.search import Round, Search
from lotan.tuning.space import Space
from lotan.tuning.trial_settings import Settings


def require_optuna() -> Any:
    """Import Optuna and return the module.

    Raises:
        ConfigurationError: Optuna is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise ConfigurationError(
            "search 'optuna' needs Optuna, which is not installed: pip install 'lotan[optuna]', or search at random"
        ) from error
    return optuna


def optuna_search(space: Space, trials: int, at_once: int, seed: int) -> Search:
    """Search a space with Optuna's tree-structured Parzen estimator.

    Args:
        space: the space. Its lists are choices without an order.
        trials: the number of trials. A trial that Optuna suggests again counts, and is not trained again.
        at_once: the number of trials that are asked for at a time, before any of them has a score.
        seed: the sampler's seed. With a seed, the sampler depends on the scores alone.
    """
    with _hushed(require_optuna()) as optuna:
        # constant_liar keeps the trials that are asked for at a time apart from each other
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        study = optuna.create_study(sampler=sampler, direction="maximize")
    known: dict[Settings, int] = {}
    for start in range(0, trials, at_once):
        asked = [study.ask() for _ in range(min(at_once, trials - start))]
        several = [space.settle({axis.key.path: _suggested(axis, one) for axis in space.axes}) for one in asked]
        new = [settings for settings in dict.fromkeys(several) if settings not in known]
        known |= {settings: len(known) + place for place, settings in enumerate(new)}
        scores = yield Round(new=new, only=tuple(known[settings] for settings in new))
        for one, settings in zip(asked, several, strict=True):
            score = scores.get(known[settings], -math.inf)
            state = optuna.trial.TrialState.FAIL if math.isinf(score) else None
            study.tell(one, None if state else score, state=state)


def _suggested(axis: Axis, trial: Any) -> Any:
    path, range_ = axis.key.path, axis.range
    if range_ is None:
        # Optuna takes plain values only and a value may be a factory, so the position stands for it
        return axis.values[trial.suggest_categorical(path, range(len(axis.values)))]
    if range_.whole:
        return trial.suggest_int(path, int(range_.low), int(range_.high), log=range_.log)
    return trial.suggest_float(path, range_.low, range_.high, log=range_.log)


@contextmanager
def _hushed(optuna: Any) -> Iterator[Any]:
    """Silence Optuna's logger within the block, and restore the user's level afterwards."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.WARNING)
    try:
        yield optuna
    finally:
        optuna.logging.set_verbosity(before)
