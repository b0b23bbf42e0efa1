"""The settings of one trial. They are complete, and settings that its model or optimizer does not have are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from lotan.batch.members import Member
from lotan.errors import ConfigurationError, LotanError, ModelError
from lotan.nn.named_models import STOCK, Factory, accepted, factory_of, made
from lotan.settings.config import TrainerConfig
from lotan.settings.named_calls import words_of
from lotan.settings.optimizers import Optimizer, optimizer_by_name
from lotan.settings.regimes import MiniBatch, Regime, read_fanouts
from lotan.settings.schedulers import SchedulerSetting, check_scheduler
from lotan.settings.tasks import LinkPrediction
from lotan.tuning.keys import ABSENT, HIDDEN, KEYS, KIND, NONE, OPTIMIZER_NAME, Key, exact

_OPTIONS: Mapping[str, str] = {  # the settings for which `lotan train` has options
    KIND: "--model",
    HIDDEN: "--hidden",
    "model.layers": "--layers",
    "model.dropout": "--dropout",
    "model.heads": "--heads",
    "model.aggr": "--aggr",
    OPTIMIZER_NAME: "--optimizer",
    "optimizer.lr": "--lr",
    "optimizer.weight_decay": "--weight-decay",
    "seed": "--seed",
    "epochs": "--epochs",
    "patience": "--patience",
    "lr_scheduler": "--lr-scheduler",
    "clip_grad_norm": "--clip-grad-norm",
    "batch_size": "--batch-size",
    "fanouts": "--fanouts",
    "link.decoder": "--decoder",
    "link.negatives": "--negatives",
    "link.loss": "--link-loss",
    "link.negative_sampling": "--negative-sampling",
    "link.filtered": "--filtered",
}


@dataclass(frozen=True, eq=False)
class Settings:
    """The settings of one trial. Two trials with equal settings become the same model, bit for bit."""

    items: tuple[tuple[str, Any], ...]  # path, such as "model.hidden", and value, in the order of `keys`

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self._exact == other._exact

    def __hash__(self) -> int:
        return hash(self._exact)

    @cached_property
    def _exact(self) -> tuple[tuple[str, type, Any], ...]:
        return tuple((path, *exact(value)) for path, value in self.items)

    @cached_property
    def values(self) -> dict[str, Any]:
        """The values by path."""
        return dict(self.items)

    def plain(self) -> dict[str, Any]:
        """Return the settings as data for JSON."""
        return {path: _named(value) for path, value in self.items}

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer, as data.

        Raises:
            ConfigurationError: torch refuses a value.
        """
        arguments = {path.partition(".")[2]: value for path, value in self.items if path.startswith("optimizer.")}
        return optimizer_by_name(arguments.pop("name"), **arguments)

    @property
    def lr_scheduler(self) -> SchedulerSetting | None:
        """The scheduler of the learning rate, or None."""
        given: SchedulerSetting = self.values.get("lr_scheduler", NONE)
        return None if given == NONE else given

    def regime(self, common: Regime) -> Regime:
        """Return the regime of the trial: that of all trials, with the settings that the trial has itself.

        Raises:
            ConfigurationError: there is a batch size, and no fanouts.
        """
        size, drawn = self.values.get("batch_size"), self.values.get("fanouts")
        if size is None and drawn is None:
            return common
        base = common if isinstance(common, MiniBatch) else None
        if base is None and drawn is None:
            raise ConfigurationError(
                'the grid sets batch_size, and mini-batches need fanouts too, such as fanouts = "10,10"'
            )
        base = base or MiniBatch()
        chosen = base.batch_size if size is None else size
        return MiniBatch(chosen, base.fanouts if drawn is None else read_fanouts(drawn), base.seed, base.order)

    def link_task(self, common: LinkPrediction | None) -> LinkPrediction | None:
        """Return the link task of the trial: that of all trials, with the settings that the trial has itself.

        Raises:
            ConfigurationError: the trial has settings of a link task, and the task is another one.
        """
        own = {path.partition(".")[2]: value for path, value in self.items if path.startswith("link.")}
        if own and common is None:
            raise ConfigurationError(
                f'the grid sets link.{next(iter(own))}, and the task predicts labels; give task="link" (--task link)'
            )
        return replace(common, **own) if common is not None else None

    def model(self, in_channels: int, out_channels: int | None) -> torch.nn.Module:
        """Return the model, with its weights drawn as `lotan train` draws them.

        Args:
            in_channels: width of the features.
            out_channels: number of outputs; None: as many as hidden channels, for links.

        Raises:
            ConfigurationError, ModelError: the model refuses a setting. The error names the trial's settings.
        """
        kind = self.values[KIND]
        out_channels = self.values[HIDDEN] if out_channels is None else out_channels
        arguments = {"in_channels": in_channels, "out_channels": out_channels, **self._arguments()}
        try:
            return made(factory(kind), arguments, self.values["seed"], f"model.kind {_named(kind)}")
        except (ConfigurationError, ModelError) as error:
            raise type(error)(f"{error} (in the model with {self.words()})") from error

    def member(self, in_channels: int, out_channels: int | None, name: str, common: TrainerConfig) -> Member:
        """Return the trial's member of a batch of models, all of which have common settings."""
        task = common.task if isinstance(common.task, LinkPrediction) else None
        return Member(
            self.model(in_channels, out_channels),
            self.optimizer,
            lr_scheduler=self.lr_scheduler,
            clip_grad_norm=self.values.get("clip_grad_norm"),
            seed=self.values["seed"],
            epochs=self.values["epochs"],
            patience=self.values.get("patience"),
            name=name,
            regime=self.regime(common.regime),
            task=self.link_task(task),
        )

    def words(self, paths: Iterable[str] | None = None) -> str:
        """Return the settings, or those of some paths, in words, such as "hidden 16, lr 0.01"."""
        chosen = self.values if paths is None else [path for path in paths if path in self.values]
        return ", ".join(f"{short(path)} {shown(self.values[path])}" for path in chosen)

    def command(self) -> list[str] | None:
        """Return the settings as options of `lotan train`, or None if a setting has no option."""
        if any(path not in _OPTIONS or callable(value) for path, value in self.items):
            return None
        flags = [_OPTIONS[path] for path, value in self.items if value is True]
        valued = [(path, value) for path, value in self.items if not isinstance(value, bool)]
        return [*(word for path, value in valued for word in (_OPTIONS[path], str(value))), *flags]

    def _arguments(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path, value in self.items:
            table, _, name = path.partition(".")
            if table == "model" and path != KIND:
                key = KEYS.get(path)
                is_none = key is not None and key.knows_none and value == NONE
                found[name if key is None else key.passed_as] = None if is_none else value
        if found.get("norm") == "layer_norm":
            found["norm_kwargs"] = {"mode": "node"}  # the only mode that does not mix rows
        return found


def settled(values: Mapping[str, Any], further: Mapping[str, Key], links: bool = False) -> Settings:
    """Return a trial's settings, with defaults and without settings that its model or optimizer does not have.

    Args:
        values: values by path, which were checked.
        further: keys of the parameters of users' own factories, by path.
        links: True for a link task, for which hidden channels are the width of the output of every model.
    """
    kind, optimizer = values.get(KIND, "gcn"), values.get(OPTIMIZER_NAME, "adam")
    found = []
    for path, key in {**KEYS, **further}.items():
        value = values.get(path, key.default)
        # None is a stock model's own default, and there is no scheduler by default
        as_by_default = key.knows_none and value == NONE and (kind in STOCK or not key.table)
        has_it = plays_a_part(key, kind, optimizer) or (links and path == HIDDEN)
        if value is not ABSENT and not as_by_default and has_it:
            found.append((path, value))
    return Settings(tuple(found))


def plays_a_part(key: Key, kind: Any, optimizer: str) -> bool:
    """Return True if the model or the optimizer has the setting."""
    if key.table == "optimizer":
        return key.owners is None or optimizer in key.owners
    if key.table != "model" or key.path == KIND:
        return True
    if kind in STOCK:
        return key.owners is None or kind in key.owners
    return bool(accepted(factory(kind), {key.passed_as: None}))


def factory(kind: Any) -> Factory:
    """Return the function that makes models of a kind.

    Raises:
        ConfigurationError: there is no kind of that name.
    """
    return kind if callable(kind) else factory_of(kind, KIND)


def short(path: str) -> str:
    """Return a setting's name in tables, such as "hidden" for model.hidden. The name of model.kind is "model"."""
    return {KIND: "model", OPTIMIZER_NAME: "optimizer"}.get(path, path.rpartition(".")[2])


def shown(value: Any) -> str:
    """Return a value as tables show it.

    >>> shown(0.001234567), shown(64), shown(True)
    ('0.00123457', '64', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(_named(value))


def varied(trials: Iterable[Settings]) -> list[str]:
    """Return the paths of the settings in which trials differ, in the order of `keys`."""
    several = list(trials)
    paths = dict.fromkeys(path for path in KEYS if any(path in one.values for one in several))
    paths |= dict.fromkeys(path for one in several for path in one.values)
    return [path for path in paths if len({exact(one.values.get(path, ABSENT)) for one in several}) > 1]


def check_optimizer(settings: Settings) -> None:
    """Make a trial's optimizer and scheduler, so that torch refuses wrong numbers.

    Raises:
        ConfigurationError: torch refuses a number. The error names the trial's settings.
    """
    try:
        optimizer = settings.optimizer
        if settings.lr_scheduler is not None:
            check_scheduler(settings.lr_scheduler, optimizer)
    except LotanError as error:
        raise ConfigurationError(f"{error} (in the model with {settings.words()})") from error


def _named(value: Any) -> Any:
    """Return a value, or the name of a function."""
    return words_of(value) if callable(value) else value
