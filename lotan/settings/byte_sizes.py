"""Sizes in bytes as people write them: "2g", "512m"."""

from __future__ import annotations

import re

from lotan.arguments import described
from lotan.errors import ConfigurationError

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgtp])(?:i?b)?|b)?\s*", re.ASCII)
MOST = 1 << 60


def byte_count(name: str, given: object, least: int = 1) -> int:
    """Return the number of bytes that an integer or a text such as "2g" stands for.

    Units are powers of 1024, as in the options of Java and Spark: every text that Spark takes means the same here. Fractions,
    spaces and the units of IEC are taken too.

    >>> byte_count("memory_limit", "1.5g"), byte_count("memory_limit", "512M"), byte_count("memory_limit", 1000)
    (1610612736, 536870912, 1000)
    >>> byte_count("memory_limit", "3gb") == byte_count("memory_limit", "3 GiB") == 3 << 30
    True

    Args:
        name: Name of the setting, for error messages.
        given: The value that the user gave.
        least: The smallest number of bytes that is accepted.

    Raises:
        ConfigurationError: If the value is not a size in bytes, or is out of range.
    """
    found = _read(given)
    if found is None:
        why = "is no size in bytes"
    elif found < least:
        why = f"is below {least:,}"
    elif found >= MOST:
        why = f"is not below {MOST >> 50:,}p"
    else:
        return found
    raise ConfigurationError(
        f"{name} is {described(given)}, which {why}; expected a whole number of bytes, or a number with a unit, such as 512m, "
        "2g or 1.5g"
    )


def as_limit(count: int) -> str:
    """Return bytes in the form that settings take, rounded up to mebibytes.

    >>> as_limit(1), as_limit(3 << 30)
    ('1m', '3072m')
    """
    return f"{-(-count // _UNITS['m'])}m"


def _read(given: object) -> int | None:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    parts = _SIZE.fullmatch(given.lower()) if isinstance(given, str) else None
    return None if parts is None or len(parts[1]) > 20 else int(float(parts[1]) * _UNITS[parts[2] or ""])
