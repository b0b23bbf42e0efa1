"""The reader of grid files, and of dictionaries with the same content. Its result is a checked `Space`.

seed = [0, 1, 2]                               # also epochs and patience

[model]
kind = ["gcn", "sage"]
hidden = [16, 64]
dropout = 0.5                                  # one value for all models

[optimizer]
lr = { low = 0.0001, high = 0.1, log = true }  # a range from which values are drawn
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lotan.arguments import described, nearest
from lotan.errors import ConfigurationError
from lotan.nn.named_models import STOCK, accepted
from lotan.tuning.axes import Axis, axis_of
from lotan.tuning.keys import HIDDEN, KEYS, KIND, LINK, MEANT, MODEL, OPTIMIZER, OPTIMIZER_NAME, TOP, Key
from lotan.tuning.space import Space
from lotan.tuning.trial_settings import factory, plays_a_part

TABLES = {"model": MODEL, "optimizer": OPTIMIZER, "link": LINK, "": TOP}
_NO_OWN_PARAMETERS = frozenset(("in_channels", "out_channels"))


def read_grid(given: str | Path | Mapping[str, Any], links: bool = False) -> Space:
    """Read a grid, and check it as far as that is possible without a graph.

    Args:
        given: the path of a TOML file, or a dictionary with the content of one.
        links: True for a link task, whose models all have `hidden` (default: False).

    Raises:
        ConfigurationError: the file does not exist or is no TOML, a key is unknown, a value has a wrong type, a list is
            empty, or no model of the grid has a setting.

    Example:
        >>> space = read_grid({"model": {"kind": ["gcn", "sage"], "hidden": [16, 64]}})
        >>> len(space.combinations()[0])
        4
    """
    if isinstance(given, Mapping):
        return _space(given, "grid", links)
    if not isinstance(given, str | Path):
        raise ConfigurationError(f"grid is {described(given)}; expected the path of a TOML file, or a dictionary")
    try:
        content = tomllib.loads(Path(given).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"the grid {given} cannot be read: {error.strerror}; name a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the grid {given} is no TOML: {error}") from error
    return _space(content, str(given), links)


@dataclass
class _Read:
    axes: list[Axis] = field(default_factory=list)
    further: dict[str, Key] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, key: Key, given: Any, source: str) -> None:
        axis, notes = axis_of(key, given, source)
        self.axes.append(axis)
        self.notes += notes


def _space(content: Mapping[str, Any], source: str, links: bool) -> Space:
    read = _Read()
    for name, given in content.items():
        if name and name in TABLES and not isinstance(given, Mapping):
            raise ConfigurationError(f"{source}: {name} = {described(given)}; expected a table, [{name}], of settings")
        if name not in TABLES:
            read.add(_known("", name, source), given, source)
    for table in ("optimizer", "link"):
        for name, given in content.get(table, {}).items():
            read.add(_known(table, name, source), given, source)
    _read_model(content.get("model", {}), read, source)
    if not content or not read.axes:
        raise ConfigurationError(f"{source} is empty; give values to try, such as [optimizer] lr = [0.01, 0.001]")
    order = list({**KEYS, **read.further})
    axes = sorted(read.axes, key=lambda axis: order.index(axis.key.path))
    space = Space(tuple(axes), read.further, source, tuple(read.notes), links=links)
    _check_use(space)
    with _in_the_grid(source):
        space.check_optimizers()
    return space


@contextmanager
def _in_the_grid(where: str) -> Iterator[None]:
    """Add the place in the grid to errors of functions that do not know of the grid."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from error


def _read_model(table: Mapping[str, Any], read: _Read, source: str) -> None:
    read.add(KEYS[KIND], table.get("kind", "gcn"), source)
    kinds = read.axes[-1].values
    if "kind" not in table:
        read.axes.pop()
    own = [kind for kind in kinds if kind not in STOCK]
    for kind in own:
        with _in_the_grid(f"{source}: model.kind"):
            factory(kind)
    for name, given in table.items():
        if name == "kind":
            continue
        key = KEYS.get(f"model.{name}")
        if key is None and any(name not in _NO_OWN_PARAMETERS and accepted(factory(kind), {name: 0}) for kind in own):
            key = read.further.setdefault(f"model.{name}", _own_key(name))
        read.add(key or _known("model", name, source), given, source)


def _own_key(name: str) -> Key:
    """Return the key of a parameter of a user's own factory, which takes any plain value. No stock model has it."""
    return Key("model", name, "a number, a string, true or false", _plain, owners=())


def _plain(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise ValueError(value)
    return value


def _known(table: str, name: str, source: str) -> Key:
    """Return the key of that name.

    Raises:
        ConfigurationError: there is no such key. The error suggests a similar one.
    """
    names = [key.name for key in TABLES[table]]
    if name in names:
        return next(key for key in TABLES[table] if key.name == name)
    path = f"{table}.{name}" if table else name
    raise ConfigurationError(f"{source}: unknown setting {path}; {_advice(table, name, names)}")


def _advice(table: str, name: str, names: list[str]) -> str:
    meant = MEANT.get(name, name)
    for other, keys in TABLES.items():
        if other != table and any(key.name == meant for key in keys):
            place = f"in the table [{other}]" if other else "at the top of the file, above the first [table]"
            return f"{meant} stands {place}"
    tables = [] if table else [other for other in TABLES if other]
    near = meant if meant in names else nearest(name, [*names, *tables])
    where = f"[{table}]" if table else "the top of the file"
    there = f"{where} has {', '.join([*names, *(f'[{other}]' for other in tables)])}"
    return f"did you mean {near}? {there}" if near else there


def _check_use(space: Space) -> None:
    """Refuse a setting that none of the grid's models or optimizers has."""
    values = {axis.key.path: axis.values for axis in space.axes}
    kinds, optimizers = values.get(KIND, ("gcn",)), values.get(OPTIMIZER_NAME, ("adam",))
    for axis in space.axes:
        key = axis.key
        if (space.links and key.path == HIDDEN) or any(
            plays_a_part(key, kind, optimizer) for kind in kinds for optimizer in optimizers
        ):
            continue
        having = ", ".join(key.owners or ()) or "others"
        found = ", ".join(str(one) for one in (optimizers if key.table == "optimizer" else kinds))
        raise ConfigurationError(
            f"{space.source}: {key.path} is of {having}, and none of them is in the grid, which has {found}; add one, or "
            f"leave {key.name} out"
        )
