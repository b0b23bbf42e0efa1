"""Propagate, collect and gather on Spark against sums by brute force."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lotan.engines.rows.collect import collect, gather
from lotan.engines.rows.placement import Placement, open_session, pin
from lotan.engines.rows.propagate import propagate
from lotan.engines.rows.sums import Sums
from lotan.engines.rows.tables import Needs, Tables, load_tables
from lotan.engines.rows.topology import EDGES
from lotan.graph.row_keys import edge_keys, occurrences, vertex_keys
from tests.engines.drawn import Drawn, draw_graph
from tests.engines.physical import operators

pytestmark = pytest.mark.spark

BOTH = frozenset({"graph", "self_loops"})
EVERYTHING = Needs(
    frozenset({"features", "in_degree", "gcn_scale@graph", "gcn_scale@self_loops", "label", "split"}), BOTH, BOTH, BOTH
)
CHUNK = 7


class Loaded:
    def __init__(
        self,
        spark: SparkSession,
        drawn: Drawn,
        partitions: int,
        needs: Needs = EVERYTHING,
        split: np.ndarray | None = None,  # None: as many vertices in each, and in none
    ) -> None:
        self.drawn, self.placement = drawn, Placement(partitions)
        self.session = open_session(spark, partitions, batch_rows=5)
        id_type = "string" if drawn.ids.dtype.kind == "U" else "long"
        ids = drawn.ids.tolist()
        codes = np.arange(len(ids)) % 4 - 1 if split is None else split
        vertices = self.session.createDataFrame(
            [(identifier, row.tolist(), row_number % 3, code)
             for row_number, (identifier, row, code) in enumerate(zip(ids, drawn.features, codes.tolist(), strict=True))],
            f"id {id_type}, features array<float>, label int, split int",
        )  # fmt: skip
        edges = self.session.createDataFrame(
            [(ids[s], ids[d], float(w)) for s, d, w in zip(drawn.src, drawn.dst, drawn.weight, strict=True)],
            f"src {id_type}, dst {id_type}, weight float",
        )
        self.tables: Tables = load_tables(vertices, edges, needs, self.placement, CHUNK, weighted=True)

    def features(self) -> DataFrame:
        return self.tables.vertices.select("part", "id", F.col("features").alias("value"))

    def dense(self, frame: DataFrame, width: int) -> np.ndarray:
        """part, id, value as an array over all vertices, zero where there is no row."""
        found, rows = np.zeros((len(self.drawn.ids), width), dtype=np.float32), self.drawn.rows
        for row in frame.collect():
            found[rows[row["id"]]] = row["value"]
        return found


@pytest.fixture(
    scope="module", params=[pytest.param((1, True), marks=pytest.mark.nightly), (4, False)], ids=["1-string", "4-long"]
)
def loaded(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[Loaded]:
    partitions, strings = request.param
    before = held(spark)
    loaded = Loaded(spark, draw_graph(strings=strings, seed=partitions), partitions)
    yield loaded
    loaded.tables.close()
    loaded.tables.close()  # twice is fine
    assert held(spark) <= before


def held(spark: SparkSession) -> set[int]:
    return set(spark.sparkContext._jsc.getPersistentRDDs().keySet())


def edges_of(drawn: Drawn, edge_set: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (drawn.src, drawn.dst, drawn.weight) if edge_set == "graph" else drawn.self_looped()


def brute_force(drawn: Drawn, edge_set: str, weighted: bool, reverse: bool, rows: np.ndarray) -> np.ndarray:
    src, dst, weight = edges_of(drawn, edge_set)
    total = np.zeros(rows.shape)
    for s, d, w in zip(src, dst, weight, strict=True):
        start, end = (d, s) if reverse else (s, d)
        total[end] += rows[start].astype(np.float64) * (w if weighted else 1)
    return total


@pytest.mark.parametrize("form", ["vector_sum", pytest.param("arrow", marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    ("edge_set", "weighted", "reverse", "combine"),
    [
        ("graph", False, False, True),
        ("graph", True, True, True),
        ("self_loops", True, False, True),
        ("self_loops", False, True, False),
        ("graph", True, False, False),
    ],
)
def test_propagate_sums_every_edge_once(
    loaded: Loaded, form: str, edge_set: str, weighted: bool, reverse: bool, combine: bool
) -> None:
    edges = loaded.tables.placed_edges(edge_set, reverse)
    result = propagate(
        edges, loaded.features(), Sums(loaded.placement, form), weighted=weighted, reverse=reverse, combine=combine
    )
    expected = brute_force(loaded.drawn, edge_set, weighted, reverse, loaded.drawn.features)
    np.testing.assert_allclose(loaded.dense(result, expected.shape[1]), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["vector_sum", "arrow"])
def test_propagate_is_the_same_bits_every_time(loaded: Loaded, form: str) -> None:
    edges = loaded.tables.placed_edges("graph", reverse=False)

    def bits() -> bytes:
        column = propagate(
            edges, loaded.features(), Sums(loaded.placement, form), weighted=True, reverse=False, combine=True
        )
        return loaded.dense(column, 5).tobytes()

    assert bits() == bits()


def test_degrees_and_scales(loaded: Loaded) -> None:
    drawn = loaded.drawn
    for name in ("in_degree", "gcn_scale@graph", "gcn_scale@self_loops"):
        _, dst, weight = edges_of(drawn, "self_loops" if name.endswith("self_loops") else "graph")
        if name == "in_degree":
            expected = np.maximum(np.bincount(dst, minlength=len(drawn.ids)), 1.0)
        else:
            degree = np.bincount(dst, weights=weight, minlength=len(drawn.ids))
            expected = np.where(degree > 0, np.where(degree > 0, degree, 1) ** -0.5, 0)
        frame = loaded.tables.vertices.select("id", F.col(name).alias("value"))
        np.testing.assert_allclose(loaded.dense(frame, 1)[:, 0], expected, rtol=1e-6)


def test_vertices_are_numbered_in_order_of_their_ids(loaded: Loaded) -> None:
    rows = loaded.tables.vertices.select("part", "id", "key", "chunk", "row").collect()
    keys = vertex_keys(np.array([row["id"] for row in rows], dtype=loaded.drawn.ids.dtype))
    assert [row["key"] for row in rows] == keys.tolist()
    assert [row["part"] for row in rows] == (keys % loaded.placement.partitions).tolist()
    assert loaded.tables.occupied() == tuple(sorted({row["part"] for row in rows}))
    for part in loaded.tables.occupied():
        inside = [row for row in rows if row["part"] == part]
        assert [(row["chunk"], row["row"]) for row in inside] == [divmod(n, CHUNK) for n in range(len(inside))]


@pytest.mark.parametrize("edge_set", ["graph", "self_loops"])
def test_topology_holds_every_edge_in_order(loaded: Loaded, edge_set: str) -> None:
    drawn, rows = loaded.drawn, loaded.drawn.rows
    src, dst, weight = edges_of(drawn, edge_set)
    order = np.lexsort((weight, src, dst))
    keys = vertex_keys(drawn.ids)
    key = edge_keys(keys[src[order]], keys[dst[order]], occurrences(src[order], dst[order]))
    expected = list(zip(dst[order], src[order], weight[order], key, strict=True))

    at = {(row["part"], row["chunk"], row["row"]): rows[row["id"]] for row in loaded.tables.vertices.collect()}
    sources: dict[tuple[int, int], dict[int, object]] = {}
    for row in loaded.tables.sources[edge_set].collect():
        sources.setdefault((row["part"], row["chunk"]), {})[row["position"]] = row["src"]
    found = []
    for blob in loaded.tables.topology[edge_set].where(F.col("kind") == EDGES).collect():
        chunk = (blob["part"], blob["chunk"])
        ids = [sources[chunk][position] for position in range(len(sources[chunk]))]
        assert ids == sorted(set(ids))
        indptr, positions = np.frombuffer(blob["indptr"], np.int64), np.frombuffer(blob["positions"], np.int64)
        weights, edge_key = np.frombuffer(blob["weight"], np.float32), np.frombuffer(blob["keys"], np.int64)
        for row in range(CHUNK):
            for edge in range(indptr[row], indptr[row + 1]):
                found.append((at[*chunk, row], rows[ids[positions[edge]]], weights[edge], edge_key[edge]))
    assert sorted(found) == sorted(expected)
    by_chunk = [[edge for edge in found if edge[0] == d] for d in set(dst.tolist())]
    assert all(edges == sorted(edges, key=lambda edge: (edge[1], edge[2])) for edges in by_chunk)


@pytest.mark.parametrize("form", ["vector_sum", "arrow"])
@pytest.mark.parametrize("combine", [True, False])
def test_gather_is_the_adjoint_of_collect(loaded: Loaded, form: str, combine: bool) -> None:
    collected = collect(loaded.tables.sources["graph"], [loaded.features(), loaded.features()])
    pinned = pin(collected)
    pairs = pinned.frame.collect()
    assert all(row["value0"] == row["value1"] for row in pairs)
    features = loaded.drawn.features[[loaded.drawn.rows[row["id"]] for row in pairs]]
    np.testing.assert_array_equal(np.array([row["value0"] for row in pairs], dtype=np.float32), features)

    back = pinned.frame.select(
        F.col("spart").alias("part"), "id", F.col("part").alias("origin"), "chunk", "position",
        F.col("value0").alias("value"),
    )  # fmt: skip
    result = gather(back, Sums(loaded.placement, form), combine=combine)
    expected = np.zeros(loaded.drawn.features.shape)
    for row in pairs:
        expected[loaded.drawn.rows[row["id"]]] += row["value0"]
    np.testing.assert_allclose(loaded.dense(result, 5), expected, rtol=1e-5, atol=1e-5)
    pinned.release()


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_a_propagate_shuffles_the_partial_sums_and_sorts_no_messages(loaded: Loaded, reverse: bool) -> None:
    edges = loaded.tables.placed_edges("graph", reverse)
    sums = Sums(loaded.placement, "vector_sum")
    plan = operators(propagate(edges, loaded.features(), sums, weighted=False, reverse=reverse, combine=True))
    # top down: the sum where messages end, the shuffle, the sum where they start, the join
    assert plan[:8] == [
        "SortAggregate", "Project", "Sort", "Exchange", "SortAggregate", "Project", "ShuffledHashJoin",
        "InMemoryTableScan",
    ]  # fmt: skip
    assert plan.count("Exchange") == plan.count("Sort") == 1


def test_a_collect_shuffles_nothing_itself(loaded: Loaded) -> None:
    assert "Exchange" not in operators(collect(loaded.tables.sources["graph"], [loaded.features()]))
