"""Sums over consecutive rows with equal keys, however the rows are cut into batches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from lotan.engines.rows.segments import run_starts, segment_sums
from lotan.engines.rows.vectors import from_lists, to_lists


@pytest.mark.parametrize("seed", range(5))
def test_sums_are_those_of_all_rows_with_a_key(seed: int) -> None:
    random = np.random.default_rng(seed)
    keys = np.sort(random.integers(0, 12, 50))
    rows = random.standard_normal((50, 3)).astype(np.float32)
    table = pa.RecordBatch.from_arrays([pa.array(keys // 4), pa.array(keys), to_lists(rows)], ["part", "id", "value"])
    cuts = [0, *np.sort(random.integers(0, 51, 6)).tolist(), 50]  # some batches are empty
    batches = (table.slice(start, end - start) for start, end in pairwise(cuts))
    made = pa.Table.from_batches(segment_sums(["part", "id"], "value")(batches))
    ids = np.unique(keys)
    assert made["id"].to_pylist() == ids.tolist()
    assert made["part"].to_pylist() == (ids // 4).tolist()
    expected = [rows[keys == one].astype(np.float64).sum(0) for one in ids]
    np.testing.assert_allclose(from_lists(made["value"].combine_chunks()), expected, rtol=1e-6, atol=1e-6)


def test_no_rows_make_no_sums() -> None:
    empty = pa.RecordBatch.from_arrays([pa.array([], pa.int64()), to_lists(np.empty((0, 2)))], ["id", "value"])
    assert list(segment_sums(["id"], "value")(iter([empty]))) == []


def test_a_run_begins_where_any_key_differs() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1, 1, 2, 2]), pa.array(["a", "b", "b", "b"])], ["part", "id"])
    assert run_starts(batch, ["part", "id"]).tolist() == [0, 1, 2]
