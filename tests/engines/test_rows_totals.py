"""A reduction over all vertices on rows, without Spark: parts of partitions, and what they are merged to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch

from lotan.engines.rows.totals import Spread, _merging, _parting
from lotan.engines.rows.vectors import from_lists, to_lists
from planner.spec import TOTALS

EXPECTED = {
    "sum": lambda rows: rows.sum(0),
    "mean": lambda rows: rows.mean(0),
    "max": lambda rows: rows.max(0),  # vertices without a row, which are zeros here, are less
    "sample": lambda rows: rows.sum(0) / (len(rows) - 1),
    "moments": lambda rows: np.stack([rows.mean(0), rows.var(0)], axis=-1).ravel(),
}


@pytest.mark.parametrize("kind", [*TOTALS, "max"])
@pytest.mark.parametrize("batch_rows", [1, 7, 100])
def test_equals_the_definition(kind, batch_rows):
    """Partitions of several sizes, one of them empty, in batches that end anywhere; and vertices without a row."""
    draw = np.random.default_rng(0)
    counts, without = {0: 20, 2: 1, 3: 13}, 5
    rows = (draw.normal(size=(sum(counts.values()), 4)) + 1000).astype(np.float32)
    part = np.repeat([*counts], [*counts.values()]).astype(np.int32)
    whole = pa.RecordBatch.from_arrays([pa.array(part), to_lists(rows)], names=["part", "value"])
    batches = [whole.slice(start, batch_rows) for start in range(0, len(rows), batch_rows)]
    parts = pa.Table.from_batches([*_parting(4, kind)(batches)])
    assert parts["part"].to_pylist() == [*counts]
    sent = [parts.add_column(0, "to", pa.array([to] * len(parts))) for to in (0, 1)]
    received = pa.concat_tables(sent).combine_chunks().to_batches()
    found = pa.Table.from_batches([*_merging(kind, 4, len(rows) + without)(received)])
    assert found["part"].to_pylist() == [0, 1]
    expected = EXPECTED[kind](np.append(rows.astype(np.float64), np.zeros((without, 4)), axis=0))
    for row in from_lists(found["value"].combine_chunks()):
        np.testing.assert_allclose(row, expected, rtol=1e-6)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("kind", TOTALS)
def test_a_gradient_equals_autograd(kind, scaled):
    """Of two gradients of the total, which are summed already, and two other gradients of the column."""
    draw = np.random.default_rng(1)
    x, *plus = (draw.normal(size=(9, 4)).astype(np.float32) for _ in range(3))
    scale = draw.uniform(0.5, 2, (9, 1)).astype(np.float32) if scaled else np.ones((9, 1), np.float32)
    sums = [draw.normal(size=8 if kind == "moments" else 4).astype(np.float32) for _ in range(2)]
    given = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    rows = given * torch.tensor(scale)
    total = {
        "sum": lambda: rows.sum(0),
        "mean": lambda: rows.mean(0),
        "sample": lambda: rows.sum(0) / 8,
        "moments": lambda: torch.stack([rows.mean(0), rows.var(0, correction=0)], dim=-1).flatten(),
    }[kind]()
    (total * torch.tensor(sums[0].astype(np.float64) + sums[1])).sum().backward()
    every = {f"sum{number}": np.tile(one, (9, 1)) for number, one in enumerate(sums)}
    every |= {f"plus{number}": one for number, one in enumerate(plus)} | ({"scale": scale} if scaled else {})
    if kind == "moments":
        every |= {"x": x, "moments": np.tile(total.detach().numpy().astype(np.float32), (9, 1))}
    batch = pa.RecordBatch.from_arrays([to_lists(one) for one in every.values()], names=[*every])
    found = Spread(kind, 9, 4)._gradient(batch)
    np.testing.assert_allclose(found, given.grad.numpy() + plus[0] + plus[1], rtol=1e-5, atol=1e-5)
