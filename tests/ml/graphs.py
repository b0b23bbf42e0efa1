"""A small graph as Spark DataFrames, with classes that features and edges follow."""

from __future__ import annotations

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

VERTICES, WIDTH, CLASSES = 60, 6, 3


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Vertices with `fold`, 0 or 1; every second one is in a split."""
    generator = np.random.default_rng(0)
    label = np.arange(VERTICES) % CLASSES
    features = np.eye(CLASSES)[label].repeat(WIDTH // CLASSES, axis=1) + generator.normal(size=(VERTICES, WIDTH))
    split = np.where(np.arange(VERTICES) % 5 == 0, "val", "train")
    vertices = pd.DataFrame(
        {
            "id": np.arange(VERTICES),
            "features": list(features.astype(np.float32)),
            "label": label.astype(np.float64),
            "target": features.sum(1).astype(np.float64),
            "split": split,
            "fold": generator.permutation(VERTICES).astype(np.int32) % 2,
        }
    )
    ends = generator.integers(0, VERTICES, size=(2, 240))
    return vertices, pd.DataFrame({"src": ends[0], "dst": ends[1]})


def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """The same in Spark."""
    vertices, edges = tables()
    schema = "id bigint, features array<float>, label double, target double, split string, fold int"
    return spark.createDataFrame(vertices, schema).coalesce(2), spark.createDataFrame(edges).coalesce(2)
