"""The settings of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lotan.arguments import described, require_count, require_flag
from lotan.batch.members import OWN
from lotan.errors import ConfigurationError
from lotan.settings.config import TrainerConfig, make_config
from lotan.tuning.search import ETA
from lotan.tuning.search_names import SEARCHES, SearchName


@dataclass(frozen=True)
class TuneConfig:
    """How to search. Every field is a keyword argument of `lotan.tune`."""

    search: SearchName = "grid"
    trials: int | None = (
        None  # to draw; None: 20. Halving without it begins with all combinations, if there are no ranges
    )
    eta: int = ETA  # of halving: one in so many goes on
    epochs: int | None = None  # at most, where the grid does not say; None: 200
    patience: int | None = None  # as of a Trainer, where the grid does not say
    seed: int = 0  # of the search; of weights and dropout, where the grid does not say
    max_models: int | None = None  # that train at a time; None: as many as memory takes
    progress: bool = True  # a table of the models on standard error

    def __post_init__(self) -> None:
        """Refuse what cannot be used.

        Raises:
            ConfigurationError: naming the setting, what was given and what is expected.
        """
        if self.search not in SEARCHES:
            raise ConfigurationError(f"unknown search {described(self.search)}; there are {', '.join(SEARCHES)}")
        for name in ("trials", "epochs", "patience", "max_models"):
            if getattr(self, name) is not None:
                require_count("tune", name, getattr(self, name))
        require_count("tune", "eta", self.eta, least=2)
        require_count("tune", "seed", self.seed, least=0)
        require_flag("tune", "progress", self.progress)
        if self.search == "grid" and self.trials is not None:
            raise ConfigurationError("trials is for searches that draw, and 'grid' takes all; take search 'random'")


def make_configs(options: Mapping[str, Any]) -> tuple[TuneConfig, TrainerConfig, dict[str, Any]]:
    """Of keyword arguments: how to search, what the models have in common, and the arguments that say the latter.

    Raises:
        ConfigurationError: for an unknown or unusable one.
    """
    own = [item.name for item in fields(TuneConfig)]
    common = [item.name for item in fields(TrainerConfig) if item.name not in {*OWN, *own}]
    for name in options:
        if name in OWN and name not in own:
            raise ConfigurationError(f"tune got {name}, which is each model's own: set it in the grid")
        if name not in (*own, *common):
            raise ConfigurationError(f"unknown setting {name}; there are {', '.join([*own, *common])}")
    shared = {name: value for name, value in options.items() if name not in own}
    config = TuneConfig(**{name: value for name, value in options.items() if name in own})
    return config, make_config(shared), shared
