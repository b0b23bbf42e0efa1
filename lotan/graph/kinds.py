"""The kinds of values that a column may have, in one table for all readers.

Each reader translates its own types to kinds. `ACCEPTED` says which kinds a column may have, whoever reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

Base = Literal["integer", "real", "decimal", "boolean", "text", "vector", "nothing", "other"]
Role = Literal["id", "number", "features", "label", "split", "mask", "edge type", "relation"]

VECTOR_FIELDS = ("type", "size", "indices", "values")
"""The fields of a Spark ML vector, as Spark writes it to Parquet."""


@dataclass(frozen=True)
class Kind:
    """The kind of a column's values."""

    base: Base
    depth: int = 0  # the number of arrays around a value
    fraction: bool = False  # True for decimals with digits behind the point

    @property
    def whole(self) -> bool:
        """True if all values are whole numbers by their type."""
        return self.base in ("integer", "boolean") or (self.base == "decimal" and not self.fraction)


_NUMBERS: tuple[Base, ...] = ("integer", "real", "decimal", "boolean")

ACCEPTED: Mapping[Role, Mapping[int, tuple[Base, ...]]] = {
    "id": {0: ("integer", "text", "decimal", "real")},  # decimals and reals must be whole numbers
    "number": {0: _NUMBERS},
    "features": {0: (*_NUMBERS, "vector"), 1: (*_NUMBERS, "nothing"), 2: _NUMBERS, 3: _NUMBERS},  # [] has nothing
    "label": {0: (*_NUMBERS, "text", "nothing"), 1: (*_NUMBERS, "nothing")},
    "split": {0: ("text", "integer", "real", "nothing")},  # reals are integers of which some are missing
    "mask": {0: ("boolean", "integer")},
    "edge type": {0: ("integer", "decimal")},
    "relation": {0: ("integer", "decimal", "text")},
}
"""The kinds that a column may have, by its role and the number of arrays around a value."""


def accepts(role: Role, kind: Kind) -> bool:
    """Return True if a column of this role may have this kind of values.

    >>> accepts("features", Kind("decimal", depth=1)), accepts("id", Kind("boolean"))
    (True, False)
    """
    return kind.base in ACCEPTED[role].get(kind.depth, ())


def accepts_whole(role: Role, kind: Kind) -> bool:
    """Return True if a column of this role may have this kind of values, and they are texts or whole numbers by their type.

    >>> accepts_whole("relation", Kind("decimal")), accepts_whole("relation", Kind("decimal", fraction=True))
    (True, False)
    """
    return accepts(role, kind) and (kind.base == "text" or kind.whole)


def kind_of_arrow(given: pa.DataType) -> Kind:
    """Return the kind of values of an Arrow type.

    >>> kind_of_arrow(pa.list_(pa.decimal128(12, 3)))
    Kind(base='decimal', depth=1, fraction=True)
    """
    types = pa.types
    if isinstance(given, pa.BaseExtensionType):
        return kind_of_arrow(given.storage_type)
    if types.is_dictionary(given):
        return kind_of_arrow(given.value_type)
    if is_list(given):
        inner = kind_of_arrow(given.value_type)
        return replace(inner, depth=inner.depth + 1)
    if types.is_struct(given):
        names = tuple(given.field(at).name for at in range(given.num_fields))
        return Kind("vector" if names == VECTOR_FIELDS else "other")
    if types.is_decimal(given):
        return Kind("decimal", fraction=given.scale > 0)
    tests: tuple[tuple[Base, Any], ...] = (
        ("boolean", types.is_boolean),
        ("integer", types.is_integer),
        ("real", types.is_floating),
        ("text", is_text),
        ("nothing", types.is_null),
    )
    return Kind(next((base for base, test in tests if test(given)), "other"))


def is_list(given: pa.DataType) -> bool:
    """Return True for an Arrow type of arrays, whatever their form."""
    types = pa.types
    tests = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
    return any(test(given) for test in tests)


def is_text(given: pa.DataType) -> bool:
    """Return True for an Arrow type of strings, whatever their form."""
    types = pa.types
    return bool(types.is_string(given) or types.is_large_string(given) or types.is_string_view(given))


def kind_of_spark(given: Any) -> Kind:
    """Return the kind of values of a Spark type."""
    from pyspark.sql import types as T

    if type(given).__name__ == "VectorUDT":
        return Kind("vector")
    if isinstance(given, T.ArrayType):
        inner = kind_of_spark(given.elementType)
        return replace(inner, depth=inner.depth + 1)
    if isinstance(given, T.DecimalType):
        return Kind("decimal", fraction=given.scale > 0)
    kinds: tuple[tuple[Base, tuple[type, ...]], ...] = (
        ("boolean", (T.BooleanType,)),
        ("integer", (T.ByteType, T.ShortType, T.IntegerType, T.LongType)),
        ("real", (T.FloatType, T.DoubleType)),
        ("text", (T.StringType,)),
        ("nothing", (T.NullType,)),
    )
    return Kind(next((base for base, classes in kinds if isinstance(given, classes)), "other"))
