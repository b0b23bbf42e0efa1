"""The library that a table is of, found without importing it.

It imports nothing else, because Spark's Python workers import it to make predictions.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame


def is_pandas(table: object) -> TypeGuard[pd.DataFrame]:
    """Return True for a pandas DataFrame. Pandas is not imported: without it, there is no such DataFrame."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(table, pandas.DataFrame)


def is_spark(table: object) -> TypeGuard[DataFrame]:
    """Return True for a Spark DataFrame, classic or Connect. Spark is not imported."""
    return any(
        kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in type(table).__mro__
    )


def is_connect(table: DataFrame) -> bool:
    """Return True for a Spark DataFrame of Spark Connect."""
    return type(table).__module__.startswith("pyspark.sql.connect")
