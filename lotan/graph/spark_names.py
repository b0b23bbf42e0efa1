"""The names of columns in Spark's expressions."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def quoted(column: str) -> str:
    """Return a column's name as Spark's expressions need it, even with a dot, a space or a backtick in it.

    >>> quoted("a.b"), quoted("a`b")
    ('`a.b`', '`a``b`')
    """
    return "`" + column.replace("`", "``") + "`"


def named(column: str) -> Column:
    """Return the column of that name."""
    return F.col(quoted(column))
