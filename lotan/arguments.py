"""Checks of plain arguments. Each raises a ConfigurationError with the owner, the value given and the value expected.

Numbers may be Python's or numpy's. A bool does not count as a number.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from lotan.errors import ConfigurationError, LotanError

LARGEST = 3.4028234663852886e38  # the largest float32


def described(value: object) -> str:
    """Return a value as given, short enough for one line.

    >>> described([1] * 100)
    '[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1...'
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a repr may be a user's code
        text = f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37].rstrip(" ,") + "..."


def wrong(owner: str, name: str, value: object, expected: str) -> ConfigurationError:
    """Return the error for one argument; `owner` is the class or function that it was given to.

    >>> print(wrong("GCN", "num_layers", 0, "a whole number of at least 1"))
    GCN got num_layers=0; expected a whole number of at least 1
    """
    return ConfigurationError(f"{owner} got {name}={described(value)}; expected {expected}")


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that somebody may have meant by one that is not there, or None if none is near.

    >>> nearest("epoch", ["epochs", "engine"]), nearest("x", ["epochs", "engine"])
    ('epochs', None)
    """
    found = difflib.get_close_matches(name, names, n=1)
    return found[0] if found else None


def unknown(
    owner: str, given: Iterable[str], takes: Iterable[str], meant: Mapping[str, str], kind: type[LotanError]
) -> LotanError:
    """Return the error for the first of some arguments that an owner does not take.

    Args:
        owner: The class or function that they were given to.
        given: Their names.
        takes: The names of the arguments that it takes.
        meant: The advice for each argument that other libraries take and this owner does not, by its name.
        kind: The type of the error.

    >>> print(unknown("Graph", ["y"], ["label"], {"y": "pass it as label"}, ConfigurationError))
    Graph takes no argument 'y': pass it as label
    >>> print(unknown("Adam", ["lrs"], ["lr", "eps"], {}, ConfigurationError))
    Adam takes no argument 'lrs'; did you mean 'lr'? It takes lr, eps
    """
    name, takes = next(iter(given)), list(takes)
    if name in meant:
        return kind(f"{owner} takes no argument {name!r}: {meant[name]}")
    near = nearest(name, takes)
    hint = "" if near is None else f"; did you mean {near!r}?"
    return kind(f"{owner} takes no argument {name!r}{hint or '.'} It takes {', '.join(takes)}")


def require_count(owner: str, name: str, value: Any, least: int = 1) -> int:
    """Require a whole number of at least `least`, and return it as Python's own int."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise wrong(owner, name, value, f"a whole number of at least {least}")
    return int(value)


def require_number(owner: str, name: str, value: Any, least: float = -LARGEST, most: float = LARGEST) -> None:
    """Require a finite number that float32 can hold, between two limits. The error names limits narrower than float32's."""
    number = not isinstance(value, bool) and isinstance(value, Real)
    if not (number and least <= value <= most and math.isfinite(value)):  # isfinite fails for an int beyond floats
        limits = f" from {least:g}" if least > -LARGEST else ""
        limits += f" to {most:g}" if most < LARGEST else ""
        raise wrong(owner, name, value, f"a number{limits}" if limits else "a finite number, within float32's range")


def require_flag(owner: str, name: str, value: Any) -> bool:
    """Require True or False, of Python or of numpy, and return it as Python's own. A text such as "false" is no flag."""
    kind = type(value)
    if not isinstance(value, bool) and (kind.__module__, kind.__name__.rstrip("_")) != ("numpy", "bool"):
        raise wrong(owner, name, value, "True or False")
    return bool(value)


def require_flags(owner: str, **flags: Any) -> None:
    """Require True or False of each argument."""
    for name, value in flags.items():
        require_flag(owner, name, value)


A_GRAPH = 'a lotan.Graph, such as lotan.Graph.read("digits"), or lotan.Graph.from_pyg(data) of a PyG object'
"""The object that an error asks for where a graph was expected."""


def require_kind(owner: str, name: str, value: Any, kind: type, expected: str) -> None:
    """Require an instance of a class; `expected` says how to make one."""
    if not isinstance(value, kind):
        raise wrong(owner, name, value, expected)
