"""Every bad graph is refused with its table, column, number, example and remedy: in memory and in Spark alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from lotan.errors import GraphError
from lotan.graph.graph import Graph
from lotan.validation.check import check_graph
from tests.night import also_in_spark

NAN, INF = float("nan"), float("inf")
FORMS = ["memory", pytest.param("spark", marks=pytest.mark.spark)]


@dataclass(frozen=True)
class Tables:
    """A graph as rows, to be made into DataFrames of either kind. The one below is good."""

    vertices: dict[str, list[Any]] = field(
        default_factory=lambda: {
            "id": [1, 2, 3, 4],
            "features": [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0], [3.0, 4.0]],
            "label": [0, 1, 2, None],
            "split": ["train", "val", "test", None],
        }
    )
    edges: dict[str, list[Any]] = field(
        default_factory=lambda: {"src": [1, 2, 3], "dst": [2, 3, 1], "weight": [1.0, 2.0, 0.5]}
    )
    types: dict[str, str] = field(default_factory=dict)  # Spark's, where they are not those below

    def vertex(self, column: str, row: int, value: Any) -> Tables:
        cells = [*self.vertices[column]]
        cells[row] = value
        return replace(self, vertices={**self.vertices, column: cells})

    def edge(self, **row: Any) -> Tables:
        return replace(self, edges={name: [*cells, row[name]] for name, cells in self.edges.items()})

    def column(self, name: str, cells: list[Any], type: str) -> Tables:
        return replace(self, vertices={**self.vertices, name: cells}, types={**self.types, name: type})

    def without(self, *columns: str) -> Tables:
        return Tables(
            *({n: c for n, c in t.items() if n not in columns} for t in (self.vertices, self.edges)), self.types
        )

    def graph(self, form: str, request: pytest.FixtureRequest, **options: Any) -> Graph:
        options = {"weight": "weight", **options}
        if form == "memory":
            return Graph(pd.DataFrame(self.vertices), pd.DataFrame(self.edges), **options)
        spark = request.getfixturevalue("spark")
        return Graph(*(self._frame(spark, table) for table in (self.vertices, self.edges)), **options)

    def _frame(self, spark: Any, table: dict[str, list[Any]]) -> Any:
        usual = {"id": "bigint", "features": "array<double>", "label": "int", "split": "string", "weight": "double"}
        usual |= {"src": "bigint", "dst": "bigint", **self.types}
        schema = ", ".join(f"{name} {usual[name]}" for name in table)
        return spark.createDataFrame(list(zip(*table.values(), strict=True)), schema)


GOOD = Tables()
MULTILABEL = GOOD.column("label", [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], None], "array<float>")
TARGETS = GOOD.column("label", [0.5, 1.5, 2.5, None], "double")


@dataclass(frozen=True)
class Case:
    """What is wrong, and words that the error must hold."""

    name: str
    tables: Tables
    words: tuple[str, ...]
    demands: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


def bad(name: str, tables: Tables, *words: str, **demands: Any) -> Case:
    return Case(name, tables, words, demands)


DOUBLED = GOOD.column("id", [1, 2, 2, 2], "bigint")
SHARED = Tables({name: cells * 2 for name, cells in GOOD.vertices.items()}, GOOD.edges)
EMPTY = Tables({n: [] for n in GOOD.vertices}, {n: [] for n in GOOD.edges})
CASES = [
    bad("null id", GOOD.vertex("id", 1, None), "vertices.id: 1 rows whose id is null", "with features [1.0, 2.0], label 1"),
    bad("doubled id", replace(DOUBLED, edges=GOOD.without().edges), "vertices.id: 1 ids", "more than once", "id 2"),
    bad("ids doubled often", SHARED, "vertices.id: 4 ids", "(for example id 1, id 2, id 3)"),
    bad("empty graph", EMPTY, "vertices: the table has no rows"),
    bad("null source", GOOD.edge(src=None, dst=1, weight=1.0), "edges.src: 1 rows whose id is null", "with dst 1, weight 1.0"),
    bad(
        "dangling edges",
        GOOD.edge(src=1, dst=90, weight=1.0).edge(src=91, dst=92, weight=1.0),
        "edges.src, dst: 2 edges with an end that is not among the vertices (for example 1 -> 90, 91 -> 92)",
    ),
    bad("NaN feature", GOOD.vertex("features", 2, [1.0, NAN]), "vertices.features: 1 rows", "id 3: nan at position 1"),
    bad("infinite feature", GOOD.vertex("features", 0, [-INF, 0.0]), "vertices.features: 1", "id 1: -inf at position 0"),
    bad("null features", GOOD.vertex("features", 3, None), "vertices.features: 1 rows that are null", "id 4"),
    bad("null in an array", GOOD.vertex("features", 1, [1.0, None]), "vertices.features: 1 arrays that hold a null", "id 2"),
    bad("ragged", GOOD.vertex("features", 1, [1.0]), "vertices.features: 1 rows", "(2 numbers)", "id 2: 1 numbers"),
    bad("no features", GOOD.column("features", [[]] * 4, "array<float>"), "vertices.features: rows hold no numbers"),
    bad("width", GOOD, "rows of 2 numbers, but the model was made with in_channels=5", "in_channels=2", in_channels=5),
    bad("label too large", GOOD.vertex("label", 2, 3), "vertices.label: 1 labels", "0 to 2", "id 3: 3"),
    bad("label below -1", GOOD.vertex("label", 3, -2), "vertices.label: 1 labels", "0 to 2", "id 4: -2"),
    bad("missing label", GOOD.vertex("label", 0, None), "vertices.label: 1 vertices", "no label", "id 1: in 'train'"),
    bad("integers for regression", GOOD, "holds integers, but the task regression needs floats", task="regression"),
    bad("floats for classes", TARGETS, "holds floats", "classification needs integers", "Cast the column to int"),
    bad("label width", MULTILABEL, "arrays of 2 numbers, but the model gives 3 outputs", task="multilabel"),
    bad("width of floats", TARGETS, "one number for each vertex (regression), but the model gives 3 outputs", task="regression"),
    bad(
        "not binary",
        MULTILABEL.vertex("label", 1, [0.0, 2.0]),
        "vertices.label: 1 rows that hold other numbers than 0 and 1",
        "id 2: [0.0, 2.0]",
        task="multilabel",
        outputs=2,
    ),
    bad(
        "null in a label",
        MULTILABEL.vertex("label", 1, [0.5, None]),
        "vertices.label: 1 rows that hold NaN or an infinite number",
        task="regression",
        outputs=2,
    ),
    bad(
        "missing labels of an array column",
        MULTILABEL.vertex("label", 1, None),
        "vertices.label: 1 vertices of a split that have no label",
        "id 2: in 'val'",
        task="multilabel",
        outputs=2,
    ),
    bad(
        "infinite target",
        TARGETS.vertex("label", 1, INF),
        "vertices.label: 1 rows that hold NaN or an infinite number (for example id 2: [inf])",
        task="regression",
        outputs=1,
    ),
    bad("unknown split", GOOD.vertex("split", 1, "dev"), "vertices.split: 1 rows of an unknown split", "id 2: dev", "'val'"),
    bad("split of numbers", GOOD.column("split", [0, 1, 2, 3], "int"), "vertices.split: 1 rows of an unknown split", "id 4: 3"),
    bad(
        "classes 1 to k",
        GOOD.column("label", [1, 2, 3, None], "int"),
        "vertices.label: 1 labels",
        "id 3: 3",
        "(label - 1, if they begin with 1)",
    ),
    bad(
        "signs for classes",
        GOOD.column("label", [-1, 1, -1, 1], "int"),
        "vertices.label: 2 vertices of a split that have no label",
        "map -1 to 0 if they are classes, (label + 1) / 2",
    ),
    bad("one output", GOOD, "vertices.label: 2 labels", "train one output with task='multilabel'", outputs=1),
    bad("empty training set", GOOD.vertex("split", 0, None), "vertices.split: no vertex is in 'train'"),
    bad("no split column", GOOD.without("split"), "vertices.split: no vertex is in 'train'"),
    bad("NaN weight", GOOD.edge(src=1, dst=3, weight=NAN), "edges.weight: 1 weights that are NaN", "1 -> 3: nan"),
    bad("null weight", GOOD.edge(src=1, dst=3, weight=None), "edges.weight: 1 ", "Replace them", "1 -> 3: n"),
    bad(
        "negative weight under normalisation",
        GOOD.edge(src=1, dst=3, weight=-0.5),
        "edges.weight: 1 weights that are negative",
        "1 -> 3: -0.5",
        "normalize=False",
        normalised_weights=True,
    ),
    bad("no id column", GOOD.without("id"), "vertices: there is no column 'id'; the columns are features, label, split"),
    bad("no dst column", GOOD.without("dst"), "edges: there is no column 'dst'; the columns are src, weight"),
    Case("misspelt column", GOOD, ("no column 'feature'", "Did you mean 'features'?"), options={"features": "feature"}),
    Case("no label of that name", GOOD, ("vertices: there is no column 'klass'",), options={"label": "klass"}),
    bad("ids of doubles", GOOD.column("id", [1.5, 2.5, 3.5, 4.5], "double"), "vertices.id: is of type double"),
    bad("ends of another type", replace(GOOD, edges={**GOOD.edges, "src": list("123")}, types={"src": "string"}),
        "edges.src: is of type string, expected"),
    bad("features of strings", GOOD.column("features", [["a"]] * 4, "array<string>"), "vertices.features: is of type"),
    bad("a feature column of strings", GOOD.column("features", list("abcd"), "string"), "vertices.features: is of type"),
]  # fmt: skip


def check(graph: Graph, **demands: Any) -> Any:
    return check_graph(graph, **{"task": "classification", "outputs": 3, "in_channels": 2, **demands})


IN_SPARK_BY_DAY = ("null id", "doubled id", "dangling edges", "NaN feature", "not binary", "missing labels of an array column",
                   "unknown split", "NaN weight")  # fmt: skip
"""The faults that are looked for in Spark by day: one of each check. In memory, all are."""


@pytest.mark.parametrize(
    ("case", "form"),
    also_in_spark(product(CASES, ("memory", "spark")), IN_SPARK_BY_DAY, lambda case: case.name.replace(" ", "-")),
)
def test_bad_graphs_are_refused(case, form, request):
    with pytest.raises(GraphError) as caught:
        check(case.tables.graph(form, request, **case.options), **case.demands)
    for words in case.words:
        assert words in str(caught.value)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("tables", "demands"),
    [
        (GOOD, {}),
        (MULTILABEL, {"task": "multilabel", "outputs": 2}),
        (TARGETS, {"task": "regression", "outputs": 1}),
        (GOOD.edge(src=1, dst=3, weight=-0.5), {}),
        (GOOD.without("label", "split"), {"task": None, "outputs": None}),
        (GOOD.column("label", ["b", "a", "c", None], "string"), {}),
        (GOOD.column("split", [0, 1, 2, -1], "int"), {}),
    ],
    ids=[
        "classes",
        "multilabel",
        "regression",
        "negative weight without normalisation",
        "nothing but features",
        "texts",
        "numbers for splits",
    ],
)
def test_good_graphs_pass(tables, demands, form, request):
    report = check(tables.graph(form, request), **demands)
    assert (report.vertices, report.width) == (4, 2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("tables", "place"),
    [
        (GOOD.vertex("label", 0, -5), "vertices.segment: "),
        (GOOD.edge(src=1, dst=3, weight=NAN), "edges.amount: "),
        (GOOD.edge(src=1, dst=9, weight=1.0), "edges.payer, payee: "),
    ],
)
def test_a_column_is_named_as_the_user_named_it(tables, place, form, request):
    own = {"label": "segment", "weight": "amount", "src": "payer", "dst": "payee"}
    given = ({own.get(name, name): cells for name, cells in each.items()} for each in (tables.vertices, tables.edges))
    types = {"segment": "int", "amount": "double", "payer": "bigint", "payee": "bigint"}
    graph = Tables(*given, types).graph(form, request, **own)
    with pytest.raises(GraphError) as refused:
        check(graph)
    assert str(refused.value).startswith(place)


@pytest.mark.parametrize("form", FORMS)
def test_legal_oddities_are_counted(form, request):
    tables = GOOD.edge(src=1, dst=1, weight=1.0).edge(src=1, dst=2, weight=2.0).edge(src=1, dst=2, weight=1.0)
    report = check(tables.graph(form, request))
    assert (report.edges, report.self_loops, report.parallel_edges, report.without_in_edges) == (6, 1, 2, 1)
    assert [words.split()[1] for words in report.warnings] == ["1", "1", "2"]


@pytest.mark.parametrize("form", FORMS)
def test_reverses_are_counted_with_the_edges(form, request):
    report = check(GOOD.graph(form, request, undirected=True))
    assert (report.edges, report.without_in_edges) == (6, 1)


@pytest.mark.parametrize("form", FORMS)
def test_a_graph_without_edges_is_legal_and_says_so(form, request):
    report = check(replace(GOOD, edges={name: [] for name in GOOD.edges}).graph(form, request))
    assert report.edges == 0
    assert "as in an MLP" in report.warnings[0]


@pytest.mark.spark
def test_spark_checks_take_a_fixed_number_of_jobs(request, spark):
    graph = GOOD.graph("spark", request)
    spark.sparkContext.setJobGroup("checks", "counted")
    try:
        check(graph)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    queries = 5  # adaptive execution may run each shuffle of a query as a job of its own
    assert queries <= len(spark.sparkContext.statusTracker().getJobIdsForGroup("checks")) <= 4 * queries


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_truncated_npz_files_are_refused(tmp_path, share):
    np.savez(tmp_path / "whole.npz", num_nodes=3, edge_src=[0], edge_dst=[1], x=np.ones((3, 50)))
    content = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(GraphError, match=r"cut\.npz cannot be read as an \.npz archive"):
        Graph.read(tmp_path / "cut.npz")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"edge_dst": None}, "there is no array 'edge_dst'; the arrays are edge_src"),
        ({"x": None, "x_data": [1.0]}, "there is no array 'x_indptr', 'x_indices', 'x_shape'"),
        ({"x": None, "num_nodes": None}, "there is no array 'num_nodes', 'x_indptr', 'x_indices', 'x_data', 'x_shape'"),
        ({"x": np.ones((2, 4))}, "its arrays do not fit together: 3 vertices, but features"),
        ({"edge_src": [0, 1]}, "its arrays do not fit together: edge_src"),
        ({"train_idx": [7]}, "its arrays do not fit together"),
    ],
)
def test_npz_files_with_wrong_arrays_are_refused(tmp_path, change, words):
    held = {"num_nodes": 3, "edge_src": [0], "edge_dst": [1], "x": np.ones((3, 4)), **change}
    np.savez(tmp_path / "odd.npz", **{name: array for name, array in held.items() if array is not None})
    with pytest.raises(GraphError, match=r"odd\.npz") as caught:
        Graph.read(tmp_path / "odd.npz")
    assert words in str(caught.value)


def broken_directory(folder: Any, break_it: Callable[[Any], object]) -> Any:
    Graph(pd.DataFrame(GOOD.vertices), pd.DataFrame(GOOD.edges)).save(folder)
    break_it(folder)
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_truncated_parquet_is_refused(tmp_path, form, request):
    cut = broken_directory(
        tmp_path / "graph",
        lambda at: (at / "vertices.parquet").write_bytes((at / "vertices.parquet").read_bytes()[:-9]),
    )
    graph = Graph.read(cut)
    read = graph.arrays if form == "memory" else lambda: graph.on_spark(request.getfixturevalue("spark"))
    with pytest.raises(GraphError, match=r"vertices\.parquet: cannot be read as Parquet"):
        read()


def test_a_directory_without_edges_is_refused(tmp_path):
    folder = broken_directory(tmp_path / "graph", lambda at: (at / "edges.parquet").unlink())
    with pytest.raises(GraphError, match=r"edges\.parquet: there is no such file"):
        Graph.read(folder)


def test_parquet_with_wrong_columns_is_refused(tmp_path):
    table = pa.table({"ID": [1], "features": [[1.0]]})
    folder = broken_directory(
        tmp_path / "graph", lambda at: pyarrow.parquet.write_table(table, at / "vertices.parquet")
    )
    with pytest.raises(GraphError, match="no column 'id'; the columns are ID, features"):
        check(Graph.read(folder))


@pytest.mark.parametrize("name", ["nowhere", "no/where.npz"])
def test_names_of_nothing_are_refused(name):
    with pytest.raises(GraphError, match=r"No graph .*lotan datasets"):
        Graph.read(name)


def test_files_of_another_kind_are_refused(tmp_path):
    (tmp_path / "graph.csv").write_text("id,features\n")
    with pytest.raises(GraphError, match=r"neither an \.npz file nor a directory with vertices\.parquet"):
        Graph.read(tmp_path / "graph.csv")


def test_tables_of_two_kinds_are_refused():
    with pytest.raises(GraphError, match="Edges are a list, which is no table"):
        Graph(pd.DataFrame(GOOD.vertices), [])
