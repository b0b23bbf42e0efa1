"""Levels by joins against a search by hand; and of tables, the rows within a level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lotan.engines.rows.levels import within
from lotan.engines.rows.propagate import propagate
from lotan.engines.rows.sums import Sums
from lotan.engines.rows.topology import EDGES
from planner.spec import Targets
from tests.engines.drawn import Drawn, draw_graph
from tests.engines.test_rows_tables import BOTH, CHUNK, EVERYTHING, Loaded, brute_force, edges_of

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Case:
    """A graph of which 60 vertices have less than an edge each, but for a hub with half of all."""

    partitions: int
    strings: bool
    targets: Targets
    deepest: int
    training: tuple[int, ...] = (1, 8)
    others: tuple[int, ...] = (20, 55)  # in other splits

    def __str__(self) -> str:
        return f"{self.partitions}-{self.targets}-{self.deepest}"


CASES = [
    Case(3, True, "train", 1),
    *[
        pytest.param(case, marks=pytest.mark.nightly)
        for case in (Case(4, False, "split", 3), Case(1, True, "train", 2), Case(7, False, "train", 0))
    ],
]


@dataclass(frozen=True)
class Leveled:
    case: Case
    loaded: Loaded
    level: np.ndarray  # int [vertices], by hand

    @property
    def drawn(self) -> Drawn:
        return self.loaded.drawn


@pytest.fixture(scope="module", params=CASES, ids=str)
def leveled(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[Leveled]:
    case: Case = request.param
    drawn = draw_graph(edges=48, strings=case.strings, seed=case.partitions)
    split = np.full(len(drawn.ids), -1)
    split[list(case.training)], split[list(case.others)] = 0, (1, 2)
    needs = replace(EVERYTHING, levels=case.deepest, targets=case.targets)
    loaded = Loaded(spark, drawn, case.partitions, needs, split)
    yield Leveled(case, loaded, by_hand(drawn, split >= 0 if case.targets == "split" else split == 0, case.deepest))
    loaded.tables.close()


def by_hand(drawn: Drawn, targets: np.ndarray, deepest: int) -> np.ndarray:
    level = np.where(targets, 0, deepest + 1)
    for hops in range(1, deepest + 1):
        for source, destination in zip(drawn.src, drawn.dst, strict=True):
            if level[destination] == hops - 1:
                level[source] = min(level[source], hops)
    assert {0, deepest + 1} <= set(level.tolist())
    return level


def test_levels_are_the_fewest_hops_to_a_target(leveled: Leveled) -> None:
    rows = leveled.loaded.tables.vertices.select("id", "level").collect()
    assert len(rows) == len(leveled.level)
    assert {row["id"]: row["level"] for row in rows} == dict(
        zip(leveled.drawn.ids.tolist(), leveled.level, strict=True)
    )


def test_vertices_are_numbered_by_level_and_id_and_lie_by_id(leveled: Leveled) -> None:
    vertices = leveled.loaded.tables.vertices
    for part in leveled.loaded.tables.occupied():
        inside = vertices.where(F.col("part") == part).collect()
        assert [row["id"] for row in inside] == sorted(row["id"] for row in inside)
        numbered = sorted(inside, key=lambda row: (row["level"], row["id"]))
        assert [(row["chunk"], row["row"]) for row in numbered] == [divmod(n, CHUNK) for n in range(len(numbered))]


def test_partitions_are_occupied_that_have_a_vertex_of_the_level(leveled: Leveled) -> None:
    rows = leveled.loaded.tables.vertices.select("part", "level").collect()
    for level in range(leveled.case.deepest + 1):
        held = sorted({row["part"] for row in rows if row["level"] <= level})
        assert leveled.loaded.tables.occupied(level) == tuple(held)


@pytest.mark.parametrize("edge_set", sorted(BOTH))
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_a_propagate_sums_the_edges_that_end_within_a_level(leveled: Leveled, reverse: bool, edge_set: str) -> None:
    loaded, level = leveled.loaded, leveled.case.deepest
    edges = loaded.tables.placed_edges(edge_set, reverse, level)
    sums = Sums(loaded.placement, "vector_sum")
    result = propagate(edges, loaded.features(), sums, weighted=True, reverse=reverse, combine=True)
    src, dst, weight = edges_of(leveled.drawn, edge_set)
    kept = leveled.level[dst] <= level
    assert 0 < kept.sum() < len(kept)
    some = replace(leveled.drawn, src=src[kept], dst=dst[kept], weight=weight[kept])
    expected = brute_force(some, "graph", True, reverse, leveled.drawn.features)
    np.testing.assert_allclose(loaded.dense(result, expected.shape[1]), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("edge_set", sorted(BOTH))
def test_the_first_sources_of_a_chunk_are_those_of_its_first_rows(leveled: Leveled, edge_set: str) -> None:
    tables, positions_of = leveled.loaded.tables, leveled.drawn.rows
    src, dst, _ = edges_of(leveled.drawn, edge_set)
    at = {row["id"]: (row["part"], row["chunk"]) for row in tables.vertices.collect()}
    chunk_of = [at[identifier] for identifier in leveled.drawn.ids[dst].tolist()]
    for level in range(leveled.case.deepest + 1):
        held: dict[tuple[int, int], dict[int, int]] = {}
        for row in within(tables.sources[edge_set], level).collect():
            held.setdefault((row["part"], row["chunk"]), {})[row["position"]] = positions_of[row["src"]]
        needed: dict[tuple[int, int], set[int]] = {}
        for source, destination, chunk in zip(src, dst, chunk_of, strict=True):
            if leveled.level[destination] <= level:
                needed.setdefault(chunk, set()).add(int(source))
        assert {chunk: set(sources.values()) for chunk, sources in held.items()} == needed
        assert all(sorted(sources) == list(range(len(sources))) for sources in held.values())
        blobs = within(tables.topology[edge_set], level).where(F.col("kind") == EDGES).collect()
        assert {(blob["part"], blob["chunk"]) for blob in blobs} == needed.keys()
