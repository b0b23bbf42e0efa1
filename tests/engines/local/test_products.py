"""The sums of propagate in chunks against dense products."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lotan.engines.local.products import Chunks, Product
from lotan.engines.local.traits import TRAITS
from lotan.stages.chunk import prefix_sum, sparse_rows
from planner.chunks import GROUP_ROWS, LOCAL_ROWS, ONE_CHUNK, chunk_count, chunk_rows, local_chunk_rows
from planner.layout import Layout
from planner.shares import Crew


def drawn(rows: int, edges: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A CSR matrix [rows, rows] with parallel edges, a hub and empty rows, and the same dense."""
    generator = torch.Generator().manual_seed(seed)
    row = torch.randint(0, rows, (edges,), generator=generator) // 2
    row[: edges // 2] = rows // 3
    row = row.sort().values
    column = torch.randint(0, rows, (edges,), generator=generator)
    values = torch.rand(edges, generator=generator) + 0.5
    indptr = prefix_sum(torch.bincount(row, minlength=rows)).to(torch.int32)
    dense = torch.zeros(2, rows, rows)
    dense[0].index_put_((row, column), torch.ones(edges), accumulate=True)
    dense[1].index_put_((row, column), values, accumulate=True)
    return sparse_rows(indptr, column.to(torch.int32), rows, values), dense


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 30),
    edges=st.integers(0, 80),
    width=st.sampled_from([1, 3, 16, 100]),
    length=st.integers(1, 40),
    weighted=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_chunks_of_a_product(rows: int, edges: int, width: int, length: int, weighted: bool, seed: int) -> None:
    matrix, dense = drawn(rows, edges, seed)
    chunks = Chunks(rows, length)
    product, column = Product(matrix, weighted, chunks), torch.randn(rows, width)
    found = torch.cat([product(number, column) for number in range(len(chunks))])
    torch.testing.assert_close(found, dense[int(weighted)] @ column, rtol=1e-5, atol=1e-5)


def test_the_bits_do_not_depend_on_the_chunks() -> None:
    matrix, _ = drawn(200, 5000, seed=1)
    column = torch.randn(200, 33)
    results = []
    for length in (1, 7, 64, 500):
        chunks = Chunks(200, length)
        results.append(torch.cat([Product(matrix, True, chunks)(number, column) for number in range(len(chunks))]))
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize(
    ("rows", "most"), [(1, 3), (10, 3), (16, 3), (33, 3), (1000, 3), (500_000, 1024), (1_000_000, LOCAL_ROWS)]
)
def test_groups_hold_every_chunk_once_in_order(rows: int, most: int) -> None:
    chunks = Chunks(rows, most)
    groups = chunks.groups()
    assert [number for group in groups for number in group] == list(range(len(chunks)))
    assert [chunk.start for chunk in chunks] == [0, *(chunk.stop for chunk in chunks)][:-1]
    assert chunks[len(chunks) - 1].stop == rows
    assert max(sum(chunks[i].stop - chunks[i].start for i in group) for group in groups) <= max(GROUP_ROWS, most)


@pytest.mark.parametrize(
    ("rows", "most", "count"), [(1000, 1024, 1), (1025, 1024, 4), (2708, 1024, 4), (5000, 1024, 8)]
)
def test_few_chunks_are_shared_evenly(rows: int, most: int, count: int) -> None:
    lengths = [run.stop - run.start for run in Chunks(rows, most)]
    assert len(lengths) == count
    assert max(lengths) <= most
    assert max(lengths) - min(lengths) <= 16 * count


@pytest.mark.parametrize(
    ("rows", "count"), [(0, 1), (1, 1), (ONE_CHUNK, 1), (ONE_CHUNK + 1, 4), (70_000, 8), (114_689, 8), (300_000, 19)]
)
def test_costs_count_the_chunks_that_there_are(rows: int, count: int) -> None:
    layout = Layout(Crew(0, 2), 1, cores=2)
    chunks = Chunks(rows, local_chunk_rows(rows))
    assert chunk_count(rows, TRAITS, layout) == max(1, len(chunks)) == count
    assert chunk_rows(rows, TRAITS, layout) == max((run.stop - run.start for run in chunks), default=1)
