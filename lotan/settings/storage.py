"""The settings that do not go with partitions on a disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lotan.errors import ConfigurationError
from lotan.settings.regimes import MiniBatch
from lotan.settings.tasks import LinkPrediction

if TYPE_CHECKING:
    from lotan.settings.config import TrainerConfig


OF_ALL_ROWS = {
    "penalty": "may read all rows",
    "clip_grad_norm": "sums over rows in the order in which they lie in memory",
}
"""The settings that do not go with learned rows on a disk, each with the reason."""


def check_storage(regime: object, task: object, config: TrainerConfig) -> None:
    """Refuse what cannot be trained from partitions on a disk so far, by its name.

    Args:
        regime: The regime of the settings.
        task: Their task.
        config: The settings.

    Raises:
        ConfigurationError: If there is such a setting.
    """
    if not isinstance(regime, MiniBatch) or not regime.is_stored:
        if config.storage_dir is not None:
            raise ConfigurationError(
                f"storage_dir is {str(config.storage_dir)!r}, but no order trains from a disk: give one, such as "
                "regime=lotan.MiniBatch(1024, (), order='comet'), or leave storage_dir out"
            )
        return
    order = f"regime MiniBatch has order {regime.order!r}"
    if regime.trains_vertices and isinstance(task, LinkPrediction):
        raise ConfigurationError(
            f"{order}, which trains vertices from a disk, and task is LinkPrediction: take 'comet' or 'beta'"
        )
    if not regime.trains_vertices and not isinstance(task, LinkPrediction):
        raise ConfigurationError(
            f"{order}, which trains links from a disk: take 'cached_nodes' or 'each_once' for labels of vertices, or give "
            "task=lotan.LinkPrediction(...)"
        )
    if config.engine != "local":
        raise ConfigurationError(
            f"{order}, which trains on engine 'local', and engine is {config.engine!r}: leave engine out"
        )
    if not isinstance(task, LinkPrediction):
        if config.tables is not None:
            raise ConfigurationError(f"{order}, and tables keeps rows in other processes: leave one of them out")
        return
    reasons = {
        "filtered=True": (task.filtered, "needs all links in memory"),
        "penalty": (config.penalty is not None, OF_ALL_ROWS["penalty"]),
        "clip_grad_norm": (config.clip_grad_norm is not None, OF_ALL_ROWS["clip_grad_norm"]),
        "tables": (config.tables is not None, "keeps rows in other processes"),
        "monitor='auc'": (config.monitor == "auc", "needs all links in memory"),
    }
    for name, (given, why) in reasons.items():
        if given:
            raise ConfigurationError(f"{order}, and {name} {why}: leave one of them out")
