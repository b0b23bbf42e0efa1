"""A reduction over all vertices on rows, without Spark: parts of partitions, and what they are merged to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lotan.engines.rows.totals import _merging, _parts
from lotan.engines.rows.vectors import from_lists, to_lists
from planner.spec import TOTALS

EXPECTED = {
    "sum": lambda rows: rows.sum(0),
    "mean": lambda rows: rows.mean(0),
    "sample": lambda rows: rows.sum(0) / (len(rows) - 1),
    "moments": lambda rows: np.stack([rows.mean(0), rows.var(0)], axis=-1).ravel(),
}


@pytest.mark.parametrize("kind", TOTALS)
@pytest.mark.parametrize("batch_rows", [1, 7, 100])
def test_equals_the_definition(kind, batch_rows):
    """Partitions of several sizes, one of them empty, in batches that end anywhere; and vertices without a row."""
    draw = np.random.default_rng(0)
    counts, without = {0: 20, 2: 1, 3: 13}, 5
    rows = (draw.normal(size=(sum(counts.values()), 4)) + 1000).astype(np.float32)
    part = np.repeat([*counts], [*counts.values()]).astype(np.int32)
    whole = pa.RecordBatch.from_arrays([pa.array(part), to_lists(rows)], names=["part", "value"])
    batches = [whole.slice(start, batch_rows) for start in range(0, len(rows), batch_rows)]
    parts = pa.Table.from_batches([*_parts(batches)])
    assert parts["part"].to_pylist() == [*counts]
    sent = [parts.add_column(0, "to", pa.array([to] * len(parts))) for to in (0, 1)]
    received = pa.concat_tables(sent).combine_chunks().to_batches()
    found = pa.Table.from_batches([*_merging(kind, 4, len(rows) + without)(received)])
    assert found["part"].to_pylist() == [0, 1]
    expected = EXPECTED[kind](np.append(rows.astype(np.float64), np.zeros((without, 4)), axis=0))
    for row in from_lists(found["value"].combine_chunks()):
        np.testing.assert_allclose(row, expected, rtol=1e-6)
