"""Fast functions on frozen dataclasses, of which the plan of a deep model has thousands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache, wraps
from typing import Any, TypeVar

Record = TypeVar("Record")
Fact = TypeVar("Fact")


def changed(record: Record, **changes: Any) -> Record:
    """Return a copy of a record with some fields changed, as `dataclasses.replace` does, in a third of the time.

    Only the names of the fields are checked.

    Args:
        record: An instance of a frozen dataclass without `__post_init__` and without slots.
        changes: New values of fields, by name.

    Raises:
        TypeError: If the record has no field of a given name.

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
    if values.keys() != names:  # a cached property is among the values, or an unknown name was given
        if unknown := changes.keys() - names:
            raise TypeError(f"{kind.__name__} has no field {sorted(unknown)}")
        for name in values.keys() - names:
            del values[name]
    return made


def remembered(fact: Callable[[Record], Fact]) -> Callable[[Record], Fact]:
    """Wrap a function of a record so that its result is computed once per record, as by `cached_property`.

    The result is shared, so callers must not change it.
    """
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
