"""Fields of plain data from the wire or from a file, which are checked as they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lotan.errors import StageError

T = TypeVar("T")


class Reader:
    """The fields of one decoded dict, which are checked as they are read."""

    def __init__(self, data: Any, what: str) -> None:
        if not isinstance(data, dict):
            raise StageError(f"{what}: expected a mapping, not {type(data).__name__}")
        self._data, self._what = data, what

    def field(self, name: str) -> Any:
        """Return a field unchanged."""
        if name not in self._data:
            raise StageError(f"{self._what}: field {name!r} is missing")
        return self._data[name]

    def has(self, name: str) -> bool:
        """Return True if there is a field of that name."""
        return name in self._data

    def of(self, name: str, *types: type) -> Any:
        """Return a field of exactly one of these types."""
        value = self.field(name)
        if type(value) not in types:
            raise StageError(
                f"{self._what}: field {name!r} is {value!r}, expected {' or '.join(t.__name__ for t in types)}"
            )
        return value

    def text(self, name: str) -> str:
        """Return a field that is a string."""
        return str(self.of(name, str))

    def flag(self, name: str) -> bool:
        """Return a field that is a bool."""
        return bool(self.of(name, bool))

    def items(self, name: str, decode: Callable[[Any], T]) -> tuple[T, ...]:
        """Return a list whose items were decoded."""
        return tuple(decode(item) for item in self.of(name, list, tuple))

    def shape(self, name: str = "shape") -> tuple[int, ...]:
        """Return a list of sizes as a tuple."""
        return self.items(name, lambda size: size_of(size, self._what))

    def optional(self, name: str, decode: Callable[[Any], T]) -> T | None:
        """Return a field that may be None."""
        value = self.field(name)
        return None if value is None else decode(value)

    def choice(self, name: str, choices: tuple[str, ...]) -> Any:
        """Return a field that is one of these strings."""
        return one_of(self.field(name), choices, f"{self._what}: field {name!r}")


def one_of(value: Any, choices: tuple[str, ...], what: str) -> Any:
    """Return the value if it is one of these strings. Otherwise raise a StageError that names its meaning."""
    if value not in choices:
        raise StageError(f"{what} is {value!r}, expected one of {', '.join(choices)}")
    return value


def size_of(value: Any, what: str) -> int:
    """Return the value if it is a whole number of at least 0. Otherwise raise a StageError that names its owner."""
    if type(value) is not int or value < 0:
        raise StageError(f"{what}: {value!r} is not a size")
    return value
