"""Row keys against Spark SQL's own `xxhash64`."""

from __future__ import annotations

import numpy as np
import pytest

from lotan.graph.row_keys import edge_keys, occurrences, vertex_keys

LONGS = [0, 1, -1, 42, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 123456789012345]
STRINGS = ["", "a", "abc", "abcd", "abcdefgh", "x" * 11, "y" * 31, "z" * 32, "w" * 33, "v" * 100, "חֶבֶל", "日本語" * 9]


@pytest.mark.spark
def test_vertex_keys_of_longs_equal_spark(spark):
    rows = spark.createDataFrame([(i,) for i in LONGS], "id bigint").selectExpr("xxhash64(id)").collect()
    assert vertex_keys(np.array(LONGS)).tolist() == [row[0] for row in rows]


@pytest.mark.spark
def test_vertex_keys_of_strings_equal_spark(spark):
    rows = spark.createDataFrame([(i,) for i in STRINGS], "id string").selectExpr("xxhash64(id)").collect()
    assert vertex_keys(np.array(STRINGS, dtype=object)).tolist() == [row[0] for row in rows]


@pytest.mark.spark
def test_edge_keys_equal_spark(spark):
    edges = [(7, 9, 0), (7, 9, 1), (-5, 2**62, 0)]
    frame = spark.createDataFrame(edges, "src bigint, dst bigint, occurrence bigint")
    rows = frame.selectExpr("xxhash64(xxhash64(src), xxhash64(dst), occurrence)").collect()
    src, dst, occurrence = (np.array(column) for column in zip(*edges, strict=True))
    assert edge_keys(vertex_keys(src), vertex_keys(dst), occurrence).tolist() == [row[0] for row in rows]


def test_narrow_integers_are_hashed_as_longs():
    assert vertex_keys(np.array([3, -4], dtype=np.int32)).tolist() == vertex_keys(np.array([3, -4])).tolist()


def test_occurrences_restart_with_every_pair():
    src, dst = np.array([4, 4, 4, 4, 0, 0]), np.array([1, 1, 1, 2, 2, 2])
    assert occurrences(src, dst).tolist() == [0, 1, 2, 0, 0, 1]


def test_no_edges_have_no_occurrences():
    nothing = np.zeros(0, dtype=np.int64)
    assert occurrences(nothing, nothing).tolist() == []
    assert edge_keys(nothing, nothing, nothing).tolist() == []
