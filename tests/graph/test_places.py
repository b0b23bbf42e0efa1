"""Tables are found wherever Spark users keep them: paths, URIs, catalogs and queries, in several formats."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from lotan.errors import ConfigurationError, GraphError
from lotan.graph import spark_tables
from lotan.graph.graph import Graph
from lotan.graph.places import PACKAGES, Place, place_of

VERTICES = pa.table({"id": [1, 2, 3], "f_a": [1.0, 2.0, 3.0], "f_b": [0.5, 0.25, 0.0], "label": [0, 1, 0]})
EDGES = pa.table({"src": [1, 2], "dst": [2, 3], "weight": [2.0, 0.5]})


@pytest.fixture
def parquet(tmp_path):
    """Two Parquet files, of which no name is a default."""
    pq.write_table(VERTICES, tmp_path / "users.parquet")
    pq.write_table(EDGES, tmp_path / "links.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("s3a://bucket/a%20b", Place("uri", "s3a://bucket/a%20b")),
        ("dbfs:/graphs/edges.csv", Place("uri", "dbfs:/graphs/edges.csv", "csv")),
        ("file:///a%20b/edges.json", Place("path", "/a b/edges.json", "json")),
        ("file:/a/edges", Place("path", "/a/edges")),
        ("shop.edges", Place("table", "shop.edges")),
        ("lake.shop.`my edges`", Place("table", "lake.shop.`my edges`")),
        ("edges", Place("table", "edges")),
        ("select * from edges", Place("query", "select * from edges")),
        ("WITH e AS (SELECT 1)\nSELECT * FROM e", Place("query", "WITH e AS (SELECT 1)\nSELECT * FROM e")),
        ("graphs/edges", Place("path", "graphs/edges")),
        ("edges.orc", Place("path", "edges.orc", "orc")),
        (Path("edges"), Place("path", "edges")),
    ],
)
def test_a_text_names_a_place(text, place):
    assert place_of(text) == place


def test_a_home_folder_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert place_of("~/edges").name == str(tmp_path / "edges")
    graph = Graph.from_arrays([[1.0]], [], [])
    graph.save("~/graph")
    assert (tmp_path / "graph" / "vertices.parquet").is_file()
    assert Graph.read("~/graph").num_vertices == 1


def test_places_that_are_none_are_refused():
    with pytest.raises(GraphError, match="format is 'xml'; expected one of parquet"):
        place_of("edges", "xml")
    with pytest.raises(GraphError, match="neither a path nor a URI, nor the name of a table"):
        place_of("no such thing!")


def test_tables_of_other_names_and_columns(parquet):
    given = parquet / "users.parquet", parquet / "links.parquet"
    graph = Graph.read_tables(*given, features="f_*")
    assert graph.origin == "files"
    assert graph.estimate().width == 2
    assert graph.arrays().features.tolist() == [[1.0, 0.5], [2.0, 0.25], [3.0, 0.0]]
    assert graph.arrays().weight.tolist() == [2.0, 0.5]
    unweighted = Graph.read_tables(*map(str, given), features=["f_b"], weight=None)
    assert unweighted.arrays().weight is None
    other = Graph.read_tables(*given, features="f_a", id="label", label="id")
    with pytest.raises(GraphError, match="ids that occur more than once"):
        other.arrays()
    with pytest.raises(GraphError, match="There is no argument 'colour'"):
        Graph.read_tables(*given, colour="red")
    with pytest.raises(GraphError, match=r"No column matches 'g_\*'; the columns are id, f_a, f_b, label"):
        Graph.read_tables(*given, features="g_*").arrays()


@pytest.mark.parametrize("form", ["csv", "orc", "json"])
def test_other_formats_are_read_without_spark(form, tmp_path):
    for name, table in (("vertices", VERTICES), ("edges", EDGES)):
        place = tmp_path / f"{name}.{form}"
        if form == "csv":
            pyarrow.csv.write_csv(table, place)
        elif form == "orc":
            pyarrow.orc.write_table(table, place)
        else:
            table.to_pandas().to_json(place, orient="records", lines=True)
    for graph in (
        Graph.read(tmp_path, features="f_*"),
        Graph.read(f"file://{tmp_path}", features="f_*", format=form),
        Graph.read_tables(tmp_path / f"vertices.{form}", tmp_path / f"edges.{form}", features=["f_a", "f_b"]),
    ):
        arrays = graph.arrays()
        assert arrays.features.tolist() == [[1.0, 0.5], [2.0, 0.25], [3.0, 0.0]]
        assert (arrays.label.tolist(), arrays.weight.tolist()) == ([0, 1, 0], [2.0, 0.5])


@pytest.mark.parametrize("ending", [".parquet", ""])
@pytest.mark.parametrize("managed", [False, True])
def test_uris_are_read_without_spark(managed, ending, monkeypatch):
    memory = pytest.importorskip("fsspec").filesystem("memory")
    monkeypatch.setattr("lotan.graph.sources._active", lambda: None)
    with memory.open(f"/graphs/shop/vertices{ending}", "wb") as file:
        pq.write_table(VERTICES, file)
    for number in range(2):
        with memory.open(f"/graphs/shop/edges{ending}/weight={number}/part.parquet", "wb") as file:
            pq.write_table(EDGES.select(["src", "dst"]).slice(number, 1), file)
    if managed:
        memory.pipe(f"/graphs/shop/edges{ending}/_delta_log/0.json", b"{}")
    try:
        if managed:
            with pytest.raises(GraphError, match="is a table of Delta Lake, whose Parquet files may hold deleted rows"):
                Graph.read("memory://graphs/shop", features="f_*")
            return
        graph = Graph.read("memory://graphs/shop", features="f_*")
        assert graph.origin == "files"
        assert graph.estimate().vertices == 3
        assert (graph.arrays().src.tolist(), graph.arrays().weight.tolist()) == ([0, 1], [0.0, 1.0])
    finally:
        memory.rm("/graphs", recursive=True)


def test_an_empty_field_of_csv_is_null_and_no_other_text_is(tmp_path):
    (tmp_path / "vertices.csv").write_text("id,a,label,split\nx,1,NA,Train\ny,2,,\n")
    (tmp_path / "edges.csv").write_text("src,dst\nx,y\n")
    arrays = Graph.read(tmp_path, features="a").arrays()
    assert (arrays.label.tolist(), arrays.classes, arrays.split.tolist()) == ([0, -1], ("NA",), [0, -1])


def test_only_the_named_columns_are_read(tmp_path, monkeypatch):
    pq.write_table(VERTICES.append_column("photo", pa.array([b"x"] * 3)), tmp_path / "vertices.parquet")
    pq.write_table(EDGES, tmp_path / "edges.parquet")
    read = []
    monkeypatch.setattr(
        "lotan.graph.files.read_rows", lambda place, table, wanted: read.append(wanted) or table.to_table(wanted)
    )
    Graph.read(tmp_path, features="f_*", label=None).arrays()
    assert read == [["id", "f_a", "f_b"], ["src", "dst", "weight"]]


def test_what_only_spark_can_read_says_so(monkeypatch):
    monkeypatch.setattr("lotan.graph.sources._active", lambda: None)
    for vertices, words in (("shop.users", "a table of Spark's catalog"), ("SELECT 1", "a query")):
        with pytest.raises(GraphError, match=f"is {words}, which needs Spark. Start a session first"):
            Graph.read_tables(vertices, "edges.parquet")
    with pytest.raises(GraphError, match="of format delta, which needs Spark"):
        Graph.read_tables("a/users", "a/links", format="delta")
    for uri in ("nowhere://bucket/graph", "dbfs:/mnt/graph"):
        with pytest.raises(GraphError, match="cannot be reached without Spark"):
            Graph.read(uri)

    class NoToken:
        def get_file_info(self, path):
            raise pa.lib.ArrowException("no token")

    monkeypatch.setattr("lotan.graph.file_tables.located", lambda place: (NoToken(), place.name))
    with pytest.raises(GraphError, match="cannot be reached without Spark: no token"):
        Graph.read("abfss://container@account/graph")


def test_a_graph_is_not_saved_over_another(tmp_path):
    first, second = (Graph.from_arrays([[float(value)]], [], []) for value in (1, 2))
    first.save(tmp_path / "graph")
    with pytest.raises(GraphError, match="has a graph already"):
        second.save(tmp_path / "graph")
    second.save(tmp_path / "graph", overwrite=True)
    assert Graph.read(tmp_path / "graph").arrays().features.tolist() == [[2.0]]
    Graph.read(tmp_path / "graph").save(tmp_path / "graph", overwrite=True)
    assert Graph.read(tmp_path / "graph").arrays().features.tolist() == [[2.0]]
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphError, match="is a file, and a graph is saved as a directory"):
        first.save(tmp_path / "file")
    with pytest.raises(ConfigurationError, match="overwrite='yes'"):
        first.save(tmp_path / "other", overwrite="yes")


@pytest.mark.spark
def test_spark_reads_tables_queries_and_uris(spark, parquet):
    spark.read.parquet(str(parquet / "users.parquet")).createOrReplaceTempView("places_users")
    try:
        by_table = Graph.read_tables("places_users", f"file://{parquet}/links.parquet", features="f_*", spark=spark)
        query = "SELECT id, f_a + f_b AS total, label FROM places_users"
        by_query = Graph.read_tables(query, parquet / "links.parquet", features="total")
        assert by_table.origin == by_query.origin == "spark"
        expected = Graph.read_tables(parquet / "users.parquet", parquet / "links.parquet", features="f_*")
        for name, array in vars(expected.arrays()).items():
            np.testing.assert_array_equal(getattr(by_table.arrays(), name), array, name)
        assert by_query.arrays().features.tolist() == [[1.5], [2.25], [3.0]]
        with pytest.raises(GraphError, match="Spark cannot read places_none"):
            Graph.read_tables("places_none", "places_users", spark=spark)
        with pytest.raises(GraphError, match=r"Spark cannot read .*nowhere"):
            Graph.read_tables("nowhere://a/b", "nowhere://a/c", spark=spark)
        with pytest.raises(GraphError, match=r"Spark cannot reach nowhere://a/vertices\.parquet: .*nowhere"):
            Graph.read("nowhere://a", spark=spark)
        for name, there in (("users.parquet", True), ("users", False)):
            assert spark_tables.is_there(spark, Place("uri", f"file://{parquet}/{name}")) is there
        for form, package in PACKAGES.items():
            named = re.escape(package.partition("{")[0]) + r".*spark-submit --packages .*VERSION is that for Spark \d"
            with pytest.raises(
                GraphError, match=rf"users.*reads no {form}.*{named if form != 'avro' else spark.version}"
            ):
                Graph.read_tables(parquet / "users.parquet", parquet / "links.parquet", format=form, spark=spark)
    finally:
        spark.catalog.dropTempView("places_users")


@pytest.mark.spark
def test_a_graph_in_spark_is_not_saved_over_another(spark, tmp_path):
    vertices, edges = (spark.createDataFrame(table.to_pandas()) for table in (VERTICES, EDGES))
    graph = Graph(vertices, edges, features=["f_a"], weight="weight")
    graph.save(tmp_path / "graph")
    with pytest.raises(GraphError, match=r"graph has a graph already\. .* pass overwrite=True"):
        graph.save(tmp_path / "graph")
    graph.save(tmp_path / "graph", overwrite=True)
    read = [spark.read.parquet(f"{tmp_path}/graph/{name}.parquet") for name in ("vertices", "edges")]
    for place in (tmp_path / "graph", f"file://{tmp_path}/graph"):
        with pytest.raises(GraphError, match="would remove their rows before it reads them"):
            Graph(*read).save(place, overwrite=True)
    assert Graph.read(tmp_path / "graph").arrays().features.tolist() == [[1.0], [2.0], [3.0]]
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphError, match="is a file, and a graph is saved as a directory"):
        graph.save(tmp_path / "file")


@pytest.mark.spark
def test_texts_of_classes_are_saved_as_texts(spark, tmp_path):
    frame = pd.DataFrame({"id": [1, 2], "features": [[1.0], [2.0]], "label": ["b", "a"]})
    edges = pd.DataFrame({"src": [1], "dst": [2]})
    for number, graph in enumerate((Graph(frame, edges), Graph(spark.createDataFrame(frame), edges))):
        graph.save(tmp_path / str(number))
        again = Graph.read(tmp_path / str(number))
        assert again.arrays().label.tolist() == [1, 0]
        assert again.labels.classes == graph.labels.classes == ("a", "b")
