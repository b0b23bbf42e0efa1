"""The settings of a grid: each key with its table, its values, its models or optimizers, and `lotan train`'s default."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from numbers import Integral, Real
from typing import Any

from lotan.errors import ConfigurationError
from lotan.nn.named_models import OWN
from lotan.settings.optimizers import OPTIMIZERS, WEIGHT_DECAY
from lotan.settings.regimes import MiniBatch, read_fanouts
from lotan.settings.schedulers import EXAMPLE
from lotan.settings.tasks import ALL, DECODERS, LINK_LOSSES, NEGATIVE_SAMPLINGS

NONE = "none"  # TOML has no null: `norm = ["none", "layer_norm"]`


class Absent(Enum):
    """The type of the value `ABSENT`, which no setting has."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT  # as a default: the setting is left out, so that the called function's own default applies

Check = Callable[[Any], Any]
"""A function that returns a setting's value in its final type, or raises a ValueError if the value cannot be used."""


@dataclass(frozen=True)
class Key:
    """One setting of a grid."""

    table: str  # "model", "optimizer", "link", or "" for the top of the file
    name: str
    expected: str  # the possible values, in words
    check: Check
    default: Any = ABSENT
    owners: tuple[str, ...] | None = None  # the stock models, or the optimizers, that have it; None for all
    argument: str = ""  # the argument of the model's factory; "" if it has the key's name
    spans: type[int] | type[float] | None = None  # the type of numbers in a range; None if it cannot have a range
    knows_none: bool = False  # True if NONE is one of its values, which stands for None

    @property
    def path(self) -> str:
        """The name in errors and reports, such as "model.hidden"."""
        return f"{self.table}.{self.name}" if self.table else self.name

    @property
    def passed_as(self) -> str:
        """The argument of the model's factory that it becomes."""
        return self.argument or self.name


def exact(value: Any) -> tuple[type, Any]:
    """Return a value with its type, for comparisons. 1, 1.0 and True are equal in Python, but not for a model."""
    return type(value), value


def whole(value: Any, least: int = 0, below: int = 2**63) -> int:
    """Return a whole number as an int, or raise a ValueError."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) < below:
        raise ValueError(value)
    return int(value)


def real(value: Any, least: float = -math.inf, below: float = math.inf) -> float:
    """Return a finite number as a float, or raise a ValueError."""
    if (
        isinstance(value, bool)
        or not isinstance(value, Real)
        or not (math.isfinite(value) and least <= float(value) < below)
    ):
        raise ValueError(value)
    return float(value)


def flag(value: Any) -> bool:
    """Return a bool, or raise a ValueError."""
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def text(value: Any, choices: tuple[str, ...] = ()) -> str:
    """Return a string, which must be one of `choices` if there are any, or raise a ValueError."""
    if not isinstance(value, str) or not value or (choices and value not in choices):
        raise ValueError(value)
    return value


def kind_of_model(value: Any) -> Any:
    """Return the name of a model, or a factory, which Python code can give in place of a name."""
    return value if callable(value) else text(value)


def fanouts(value: Any) -> str:
    """Return fanouts as a text such as "10,all", from a text, a list or one number, or raise a ValueError."""
    several = value if isinstance(value, list | tuple) else [value]
    found = ",".join(map(str, several)) or NONE
    try:
        MiniBatch(1, read_fanouts(found))
    except ConfigurationError:
        raise ValueError(value) from None
    return found


def count_or_all(value: Any) -> int | str:
    """Return a whole number of at least 1, or "all", or raise a ValueError."""
    return ALL if value == ALL else whole(value, least=1)


def _count(name: str, table: str = "", least: int = 1, **more: Any) -> Key:
    return Key(table, name, f"a whole number of at least {least}", partial(whole, least=least), spans=int, **more)


def _choice(name: str, choices: tuple[str, ...], table: str = "model", **more: Any) -> Key:
    expected, check = f"one of {', '.join(choices)}", partial(text, choices=choices)
    return Key(table, name, expected, check, knows_none=NONE in choices, **more)


_LAYERED = ("gcn", "sage", "gin", "gat")
_NUMBERS: Mapping[str, tuple[str, Callable[[Any], Any], Any]] = {
    "float": ("a number", real, float),
    "bool": ("true or false", flag, None),
}

TOP = (
    _count("seed", least=0, default=0),
    _count("epochs", default=200),
    _count("patience"),
    Key(
        "",
        "lr_scheduler",
        f"{NONE!r}, or a scheduler such as {EXAMPLE!r}",
        lambda value: value if callable(value) else text(value),
        knows_none=True,
    ),
    Key("", "clip_grad_norm", "a number of at least 0", partial(real, least=0), spans=float),
    _count("batch_size"),
    Key("", "fanouts", 'fanouts such as "10,10", or "none"', fanouts),
)
LINK = (
    _choice("decoder", DECODERS, "link"),
    Key("link", "negatives", "a whole number of at least 1, or all", count_or_all, spans=int),
    _choice("loss", LINK_LOSSES, "link"),
    _choice("negative_sampling", NEGATIVE_SAMPLINGS, "link"),
    Key("link", "filtered", "true or false", flag),
)
MODEL = (
    Key("model", "kind", "gcn, sage, gin, gat, mlp or MODULE:FACTORY", kind_of_model, default="gcn"),
    _count("hidden", "model", default=64, argument="hidden_channels"),
    _count("layers", "model", default=2, argument="num_layers"),
    Key(
        "model", "dropout", "a number from 0 to less than 1", partial(real, least=0, below=1), default=0.5, spans=float
    ),
    _count("heads", "model", owners=OWN["heads"]),
    _choice("aggr", ("mean", "max", "sum"), owners=OWN["aggr"]),
    Key("model", "act", "the name of an activation, such as relu", text, owners=(*_LAYERED, "mlp")),
    _choice("norm", (NONE, "layer_norm"), owners=(*_LAYERED, "mlp")),
    _choice("jk", (NONE, "last", "cat", "max", "lstm"), owners=_LAYERED),
)
_DEFAULTS: Mapping[str, Any] = {"lr": 0.01, "weight_decay": WEIGHT_DECAY}


def _of_optimizers() -> tuple[Key, ...]:
    """Return the keys of the optimizers' numbers and flags, each with the optimizers that have it."""
    owners: dict[str, list[str]] = {}
    forms: dict[str, str] = {}
    for name, optimizer in OPTIMIZERS.items():
        for item in dataclasses.fields(optimizer):
            if item.type in _NUMBERS:  # annotations are text here; pairs and groups can be set in Python only
                owners.setdefault(item.name, []).append(name)
                forms[item.name] = str(item.type)
    keys = []
    for name, having in owners.items():
        expected, check, spans = _NUMBERS[forms[name]]
        default = _DEFAULTS.get(name, ABSENT)
        keys.append(Key("optimizer", name, expected, check, default, tuple(having), spans=spans))
    return tuple(keys)


OPTIMIZER = (
    Key(
        "optimizer", "name", f"one of {', '.join(OPTIMIZERS)}", partial(text, choices=tuple(OPTIMIZERS)), default="adam"
    ),
    *_of_optimizers(),
)
KEYS = {key.path: key for key in (*MODEL, *OPTIMIZER, *TOP, *LINK)}
KIND, OPTIMIZER_NAME, HIDDEN = "model.kind", "optimizer.name", "model.hidden"

MEANT: Mapping[str, str] = {
    "model": "kind",
    "type": "kind",
    "hidden_channels": "hidden",
    "width": "hidden",
    "num_layers": "layers",
    "depth": "layers",
    "learning_rate": "lr",
    "wd": "weight_decay",
    "optimizer": "name",
    "aggregation": "aggr",
    "seeds": "seed",
    "scheduler": "lr_scheduler",
    "clip": "clip_grad_norm",
    "batch": "batch_size",
    "fanout": "fanouts",
    "num_neighbors": "fanouts",
    "num_negatives": "negatives",
    "random_seed": "seed",
    "normalization": "norm",
    "activation": "act",
}
"""The names that other tools use, with the names that they have here."""
