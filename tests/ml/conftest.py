"""One small graph in Spark for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.ml.graphs import frames


@pytest.fixture(scope="package")
def graph(spark: SparkSession) -> Iterator[tuple[DataFrame, DataFrame]]:
    """Vertices and edges."""
    return frames(spark)
