"""A graph's fingerprint: the same whatever the order of its rows, another one when any cell changes; in memory and in Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from lotan.graph.fingerprint import fingerprint
from lotan.graph.graph import Graph

Tables = tuple[pd.DataFrame, pd.DataFrame]

VERTICES = pd.DataFrame(
    {
        "id": [1, 2, 3, 4],
        "features": [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0], [3.0, 4.0]],
        "label": [0, 1, 2, -1],
        "split": ["train", "val", "test", None],
    }
)
EDGES = pd.DataFrame({"src": [1, 2, 2, 3], "dst": [2, 3, 3, 1], "weight": [1.0, 2.0, 2.0, 0.5]})


def _changed(table: pd.DataFrame, column: str, row: int, value: object) -> pd.DataFrame:
    cells = list(table[column])
    cells[row] = value
    return table.assign(**{column: cells})


OTHERS = [
    (_changed(VERTICES, "features", 0, [1.0, 0.0]), EDGES),
    (VERTICES, _changed(EDGES, "weight", 3, 0.25)),
    (_changed(VERTICES, "id", 3, 5), EDGES),
    (_changed(VERTICES, "features", 0, [0.0, 1.5]), EDGES),
    (_changed(VERTICES, "label", 0, 1), EDGES),
    (_changed(VERTICES, "split", 2, "val"), EDGES),
    (VERTICES, _changed(EDGES, "dst", 3, 2)),
    (VERTICES, EDGES[:-1]),
]


def _check(print_of: Callable[[pd.DataFrame, pd.DataFrame], str], others: list[Tables]) -> None:
    same = print_of(VERTICES, EDGES)
    assert print_of(VERTICES[::-1].reset_index(drop=True), EDGES[::-1].reset_index(drop=True)) == same
    assert len({same, *(print_of(*tables) for tables in others)}) == 1 + len(others)


def test_in_memory() -> None:
    _check(lambda vertices, edges: fingerprint(Graph(vertices, edges, weight="weight")), OTHERS)


@pytest.mark.spark
def test_in_spark(spark: SparkSession) -> None:
    def print_of(vertices: pd.DataFrame, edges: pd.DataFrame) -> str:
        rows = list(vertices.itertuples(index=False, name=None))
        types = "id bigint, features array<double>, label int, split string"
        return fingerprint(Graph(spark.createDataFrame(rows, types), spark.createDataFrame(edges), weight="weight"))

    _check(print_of, OTHERS[:2])


def test_files_and_memory_agree(tmp_path: Path) -> None:
    graph = Graph(VERTICES, EDGES, weight="weight")
    graph.save(tmp_path / "graph")
    assert fingerprint(Graph.read(tmp_path / "graph")) == fingerprint(graph)


@pytest.mark.parametrize("form", ["memory", pytest.param("spark", marks=pytest.mark.spark)])
def test_texts_of_classes_count(form: str, request: pytest.FixtureRequest) -> None:
    def print_of(names: list[str]) -> str:
        vertices = VERTICES.drop(columns=["features", "split"]).assign(label=names, features=1.0)
        if form == "memory":
            return fingerprint(Graph(vertices, EDGES))
        spark = request.getfixturevalue("spark")
        return fingerprint(Graph(spark.createDataFrame(vertices), spark.createDataFrame(EDGES)))

    assert len({print_of(list(names)) for names in ("abca", "abda", "abca")}) == 2
