"""The settings of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lotan.arguments import described, require_count, require_flag
from lotan.errors import ConfigurationError
from lotan.settings.config import MEMBER_SETTINGS, TrainerConfig, make_config
from lotan.tuning.search import ETA
from lotan.tuning.search_names import SEARCHES, SearchName


@dataclass(frozen=True)
class TuneConfig:
    """The settings of a search. Every field is a keyword argument of `lotan.tune`."""

    search: SearchName = "grid"
    # number of trials that are drawn; None for 20, but halving of a grid without ranges then begins with all combinations
    trials: int | None = None
    eta: int = ETA  # at each rung of halving, one in so many trials goes on
    epochs: int | None = None  # the most epochs of a model if the grid does not set them; None for 200
    patience: int | None = None  # a Trainer's patience if the grid does not set it
    seed: int = 0  # seed of the search, and of weights and dropout if the grid does not set it
    max_models: int | None = None  # number of models that train at a time; None for as many as fit in memory
    progress: bool = True  # if True, a table of the models is shown on standard error

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigurationError: a setting cannot be used. The error names it, its value and the expected values.
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
    """Split the keyword arguments of `lotan.tune`.

    Returns:
        The settings of the search, the settings that all models share, and the arguments for the latter.

    Raises:
        ConfigurationError: an argument is unknown or cannot be used.
    """
    own = [item.name for item in fields(TuneConfig)]
    common = [item.name for item in fields(TrainerConfig) if item.name not in {*MEMBER_SETTINGS, *own}]
    if "resume_with" in options:
        raise ConfigurationError(
            "tune got resume_with, which is for one run: train the best model on with lotan.Trainer"
        )
    for name in options:
        if name in MEMBER_SETTINGS and name not in own:
            raise ConfigurationError(f"tune got {name}, which is each model's own: set it in the grid")
        if name not in (*own, *common):
            raise ConfigurationError(f"unknown setting {name}; there are {', '.join([*own, *common])}")
    shared = {name: value for name, value in options.items() if name not in own}
    config = TuneConfig(**{name: value for name, value in options.items() if name in own})
    return config, make_config(shared), shared
