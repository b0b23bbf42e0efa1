"""Graphs in files whose features are read part by part into a file: the same arrays as in memory, and the same errors."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import lotan
from lotan.errors import GraphError
from lotan.graph import feature_parts
from lotan.memory.mapped import MappedMemory
from lotan.validation.check import check_graph


@pytest.fixture
def parts_of_five_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_parts, "PART_BYTES", 1)
    monkeypatch.setattr(feature_parts, "LEAST_ROWS", 5)
    monkeypatch.setattr("lotan.memory.mapped.PART_BYTES", 100)


def written(
    folder: Path, features: list[list[float] | None], ids: list[int] | None = None, **columns: list
) -> lotan.Graph:
    count = len(features)
    ids = ids or list(range(count))
    vertices = {"id": ids, "features": pa.array(features, pa.list_(pa.float32())), **columns}
    parquet.write_table(pa.table(vertices), folder / "vertices.parquet")
    edges = {"src": ids, "dst": ids[1:] + ids[:1]}
    parquet.write_table(pa.table(edges), folder / "edges.parquet")
    return lotan.Graph.read(folder)


def is_in_a_file(array: np.ndarray) -> bool:
    return array.ctypes.data in MappedMemory._maps


@pytest.mark.usefixtures("parts_of_five_rows")
@pytest.mark.parametrize("in_order", [True, False])
def test_the_arrays_are_those_that_are_read_at_once(tmp_path: Path, in_order: bool) -> None:
    random = np.random.default_rng(0)
    ids = list(range(23)) if in_order else random.permutation(23).tolist()
    graph = written(
        tmp_path, random.random((23, 3)).tolist(), ids, label=random.integers(0, 2, 23).tolist(), split=["train"] * 23
    )
    in_files = graph.in_files()
    assert in_files.statistics.in_files
    whole, found = graph.arrays(), in_files.arrays()
    for field in fields(whole):
        one, other = getattr(whole, field.name), getattr(found, field.name)
        assert np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other
    assert all(map(is_in_a_file, (found.features, found.src, found.dst)))
    assert in_files.statistics == graph.statistics
    assert in_files.profile == graph.profile
    assert not graph.statistics.in_files
    assert check_graph(in_files, None, None, None) == check_graph(graph, None, None, None)


@pytest.mark.usefixtures("parts_of_five_rows")
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({7: None}, "null"),
        ({7: [1.0]}, "shorter than the longest"),
        ({number: [1.0] for number in range(5)}, "shorter than the longest.*id 0"),
        ({number: [1.0] for number in range(10, 15)}, "shorter than the longest.*id 10"),
    ],
    ids=["null", "in a part", "first part", "later part"],
)
def test_bad_features_are_refused_wherever_they_are(tmp_path: Path, bad: dict, words: str) -> None:
    graph = written(tmp_path, [bad.get(number, [1.0, 2.0]) for number in range(23)])
    with pytest.raises(GraphError, match=words):
        graph.in_files().arrays()


@pytest.mark.usefixtures("parts_of_five_rows")
def test_numbers_that_are_not_finite_are_found_in_any_part(tmp_path: Path) -> None:
    graph = written(tmp_path, [[1.0, float("inf") if number == 17 else 2.0] for number in range(23)])
    with pytest.raises(GraphError, match="id 17"):
        check_graph(graph.in_files(), None, None, None)
