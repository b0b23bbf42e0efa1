"""Frozen dataclasses, of which a deep model's plan has thousands: with some fields changed, and with what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache, wraps
from typing import Any, TypeVar

Record = TypeVar("Record")
Fact = TypeVar("Fact")


def changed(record: Record, **changes: Any) -> Record:
    """What `dataclasses.replace` makes, in a third of the time: nothing is checked but the names of fields.

    Args:
        record: an instance of a frozen dataclass without `__post_init__` or slots.
        changes: other values of fields, by name.

    Raises:
        TypeError: it has no field of that name.

    >>> from planner.physical import Column
    >>> changed(Column("h", (4,)), name="d_h")
    Column(name='d_h', shape=(4,), dtype='float32', static=False, edges=None, within=None)
    """
    kind: Any = type(record)
    made: Record = object.__new__(kind)
    values = vars(made)
    values.update(vars(record))
    values.update(changes)
    names = _fields(kind)
    if values.keys() != names:  # something is cached, or nothing is named so
        if unknown := changes.keys() - names:
            raise TypeError(f"{kind.__name__} has no field {sorted(unknown)}")
        for name in values.keys() - names:
            del values[name]
    return made


def remembered(fact: Callable[[Record], Fact]) -> Callable[[Record], Fact]:
    """A function of a record that works once for each, as a `cached_property` does; nobody may change what it returns."""
    key = f"{fact.__module__}.{fact.__qualname__}"

    @wraps(fact)
    def found(record: Record) -> Fact:
        known = vars(record)
        if key not in known:
            known[key] = fact(record)
        value: Fact = known[key]
        return value

    return found


@cache
def _fields(kind: Any) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))
