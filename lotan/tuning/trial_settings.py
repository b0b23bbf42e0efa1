"""The settings of one trial: complete, without those that play no part, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from lotan.batch.members import Member
from lotan.errors import ConfigurationError, LotanError, ModelError
from lotan.nn.named_models import STOCK, Factory, accepted, factory_of, made
from lotan.settings.optimizers import Optimizer, optimizer_by_name
from lotan.tuning.keys import ABSENT, KEYS, KIND, NONE, OPTIMIZER_NAME, Key, exact

_OPTIONS: Mapping[str, str] = {  # settings that `lotan train` has options for
    KIND: "--model",
    "model.hidden": "--hidden",
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
}


@dataclass(frozen=True, eq=False)
class Settings:
    """What one trial is trained with: equal for two trials that would become the same model, bit for bit."""

    items: tuple[tuple[str, Any], ...]  # by path, such as "model.hidden", in the order of `keys`

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self._exact == other._exact

    def __hash__(self) -> int:
        return hash(self._exact)

    @cached_property
    def _exact(self) -> tuple[tuple[str, type, Any], ...]:
        return tuple((path, *exact(value)) for path, value in self.items)

    @cached_property
    def values(self) -> dict[str, Any]:
        """By path."""
        return dict(self.items)

    def plain(self) -> dict[str, Any]:
        """As data for JSON."""
        return {path: _named(value) for path, value in self.items}

    @property
    def optimizer(self) -> Optimizer:
        """Of torch's, as data.

        Raises:
            ConfigurationError: a value that torch refuses.
        """
        arguments = {path.partition(".")[2]: value for path, value in self.items if path.startswith("optimizer.")}
        return optimizer_by_name(arguments.pop("name"), **arguments)

    def model(self, in_channels: int, out_channels: int) -> torch.nn.Module:
        """The model with its weights drawn, as `lotan train` draws them.

        Raises:
            ConfigurationError, ModelError: naming the settings, for what the model refuses.
        """
        kind = self.values[KIND]
        arguments = {"in_channels": in_channels, "out_channels": out_channels, **self._arguments()}
        try:
            return made(factory(kind), arguments, self.values["seed"], f"model.kind {_named(kind)}")
        except (ConfigurationError, ModelError) as error:
            raise type(error)(f"{error} (in the model with {self.words()})") from error

    def member(self, in_channels: int, out_channels: int, name: str) -> Member:
        """What a batch of models trains."""
        return Member(
            self.model(in_channels, out_channels),
            self.optimizer,
            seed=self.values["seed"],
            epochs=self.values["epochs"],
            patience=self.values.get("patience"),
            name=name,
        )

    def words(self, paths: Iterable[str] | None = None) -> str:
        """In words, all or those of some paths: "hidden 16, lr 0.01"."""
        chosen = self.values if paths is None else [path for path in paths if path in self.values]
        return ", ".join(f"{short(path)} {shown(self.values[path])}" for path in chosen)

    def command(self) -> list[str] | None:
        """These as options of `lotan train`; None where it has none for some of them."""
        if any(path not in _OPTIONS or callable(value) for path, value in self.items):
            return None
        return [word for path, value in self.items for word in (_OPTIONS[path], str(value))]

    def _arguments(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path, value in self.items:
            table, _, name = path.partition(".")
            if table == "model" and path != KIND:
                key = KEYS.get(path)
                is_none = key is not None and key.knows_none and value == NONE
                found[name if key is None else key.passed_as] = None if is_none else value
        if found.get("norm") == "layer_norm":
            found["norm_kwargs"] = {"mode": "node"}  # the only one that does not mix rows
        return found


def settled(values: Mapping[str, Any], further: Mapping[str, Key]) -> Settings:
    """Settings from what was given: defaults added, and left out what the model or the optimizer has no use for.

    Args:
        values: by path, checked.
        further: keys of models of one's own.
    """
    kind, optimizer = values.get(KIND, "gcn"), values.get(OPTIMIZER_NAME, "adam")
    found = []
    for path, key in {**KEYS, **further}.items():
        value = values.get(path, key.default)
        as_by_default = key.knows_none and value == NONE and kind in STOCK  # whose own default is None
        if value is not ABSENT and not as_by_default and plays_a_part(key, kind, optimizer):
            found.append((path, value))
    return Settings(tuple(found))


def plays_a_part(key: Key, kind: Any, optimizer: str) -> bool:
    """Whether that model or optimizer has the setting."""
    if key.table == "optimizer":
        return key.owners is None or optimizer in key.owners
    if key.table != "model" or key.path == KIND:
        return True
    if kind in STOCK:
        return key.owners is None or kind in key.owners
    return bool(accepted(factory(kind), {key.passed_as: None}))


def factory(kind: Any) -> Factory:
    """What makes models of a kind.

    Raises:
        ConfigurationError: there is none of that name.
    """
    return kind if callable(kind) else factory_of(kind, KIND)


def short(path: str) -> str:
    """A setting's name in tables: "hidden" for model.hidden, "model" for its kind."""
    return {KIND: "model", OPTIMIZER_NAME: "optimizer"}.get(path, path.rpartition(".")[2])


def shown(value: Any) -> str:
    """A value in tables.

    >>> shown(0.001234567), shown(64), shown(True)
    ('0.00123457', '64', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(_named(value))


def varied(trials: Iterable[Settings]) -> list[str]:
    """The paths in which trials differ, in the order of `keys`."""
    several = list(trials)
    paths = dict.fromkeys(path for path in KEYS if any(path in one.values for one in several))
    paths |= dict.fromkeys(path for one in several for path in one.values)
    return [path for path in paths if len({exact(one.values.get(path, ABSENT)) for one in several}) > 1]


def check_optimizer(settings: Settings) -> None:
    """Have torch refuse what it would.

    Raises:
        ConfigurationError: naming the settings.
    """
    try:
        settings.optimizer  # noqa: B018
    except LotanError as error:
        raise ConfigurationError(f"{error} (in the model with {settings.words()})") from error


def _named(value: Any) -> Any:
    """A value, a factory by its name."""
    return f"{value.__module__}:{getattr(value, '__qualname__', value)}" if callable(value) else value
