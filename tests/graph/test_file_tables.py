"""Tables in files: columns of all part files and of partitions are found, and tables with a log are refused by name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lotan.errors import ConfigurationError, GraphError
from lotan.graph.file_tables import open_table
from lotan.graph.graph import Graph
from lotan.graph.places import place_of
from lotan.training.trainer import Trainer

VERTICES = pa.table({"id": [1, 2, 3], "features": [[1.0], [2.0], [3.0]]})
EDGES = {"src": [1, 2, 3], "dst": [2, 3, 1]}


def write(folder, parts, name="edges.parquet"):
    """Write part files. `parts` has their tables by path below the folder of the table."""
    pq.write_table(VERTICES, folder / "vertices.parquet")
    for place, table in parts.items():
        path = folder / name / place
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
    return folder


def edges(*rows, **columns):
    return pa.table({name: [cells[row] for row in rows] for name, cells in EDGES.items()} | columns)


FORMS = {
    "in a partition column": {"weight=0.5/a.parquet": edges(0, 1), "weight=2/a.parquet": edges(2)},
    "in a later part file": {"a.parquet": edges(0, 1), "b.parquet": edges(2, weight=[2.0])},
}


@pytest.mark.parametrize("form", FORMS)
def test_weights_are_found_wherever_they_are(form, tmp_path):
    graph = Graph.read(write(tmp_path, FORMS[form]))
    assert graph.names.weight == "weight"
    assert graph.estimate().weighted
    if form == "in a partition column":
        assert sorted(graph.arrays().weight.tolist()) == [0.5, 0.5, 2.0]
    else:
        with pytest.raises(GraphError, match=r"edges\.weight: 2 rows that are null"):
            graph.arrays()


@pytest.mark.spark
def test_spark_finds_the_same_columns_in_files(spark, tmp_path):
    for number, form in enumerate(FORMS):
        (tmp_path / str(number)).mkdir()
        tables = Graph.read(write(tmp_path / str(number), FORMS[form])).tables(spark)
        weights = sorted((row.weight for row in tables[1].collect()), key=str)
        assert weights == ([0.5, 0.5, 2.0] if form == "in a partition column" else [2.0, None, None])
    mixed = {
        "a.parquet": edges(0, 1).cast(pa.schema([("src", pa.int32()), ("dst", pa.int64())])),
        "b.parquet": edges(2),
    }
    (tmp_path / "mixed").mkdir()
    graph = Graph.read(write(tmp_path / "mixed", mixed))
    assert sorted(map(tuple, graph.tables(spark)[1].collect())) == [(1, 2), (2, 3), (3, 1)]
    assert graph.arrays().src.tolist() == [2, 0, 1]


@pytest.mark.spark
def test_half_floats_are_refused_where_spark_reads(spark, tmp_path):
    halves = pa.table({"id": [1, 2, 3], "features": pa.array([1.0, 2.0, 3.0], pa.float16())})
    folder = write(tmp_path, {"a.parquet": edges(0)})
    pq.write_table(halves, folder / "vertices.parquet")
    assert Graph.read(folder).arrays().features.tolist() == [[1.0], [2.0], [3.0]]
    with pytest.raises(GraphError, match=r"half floats, which Spark cannot read\. Write it as float32"):
        Graph.read(folder).tables(spark)


def test_files_whose_types_fit_into_none_are_refused(tmp_path):
    folder = write(tmp_path, {"a.parquet": edges(0), "b.parquet": pa.table({"src": ["1"], "dst": ["2"]})})
    with pytest.raises(GraphError, match=r"its files differ: .*src has incompatible types"):
        Graph.read(folder)


def test_a_folders_name_above_the_table_is_no_partition(tmp_path):
    folder = tmp_path / "weight=7"
    folder.mkdir()
    write(folder, {"a.parquet": edges(0, 1, 2)})
    assert open_table(place_of(folder / "edges.parquet")).schema.names == ["src", "dst"]
    assert open_table(place_of(folder / "vertices.parquet")).schema.names == ["id", "features"]


@pytest.mark.parametrize(
    ("log", "name"),
    [
        ("_delta_log/0.json", "Delta Lake"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("metadata/v1.metadata.json", "Iceberg"),
        ("metadata/version-hint.text", "Iceberg"),
    ],
)
def test_tables_with_a_log_are_refused_by_name(log, name, tmp_path):
    place = write(tmp_path, {"a.parquet": edges(0, 1, 2)}) / "edges.parquet" / log
    place.parent.mkdir()
    place.write_text("{}")
    with pytest.raises(GraphError, match=f"is a table of {name}, whose Parquet files may hold deleted rows"):
        Graph.read(tmp_path)


def test_an_archive_has_weights(tmp_path):
    held = {"num_nodes": 3, "x": np.ones((3, 1)), "edge_src": [0, 1], "edge_dst": [1, 2]}
    np.savez(tmp_path / "graph.npz", **held, edge_weight=[0.5, 2.0])
    assert Graph.read(tmp_path / "graph.npz").arrays().weight.tolist() == [0.5, 2.0]
    np.savez(tmp_path / "short.npz", **held, edge_weight=[0.5])
    with pytest.raises(GraphError, match="2 edges, but edge_weight of shape"):
        Graph.read(tmp_path / "short.npz")


@pytest.mark.parametrize(
    "make",
    [
        lambda flag: Graph(VERTICES.to_pandas(), edges(0).to_pandas(), undirected=flag),
        lambda flag: Graph.read("digits", undirected=flag),
        lambda flag: Graph.from_arrays([[1.0]], [], [], undirected=flag),
    ],
    ids=["tables", "a name", "arrays"],
)
def test_undirected_is_true_or_false(make):
    for flag in ("false", 1, None):
        with pytest.raises(ConfigurationError, match=r"Graph got undirected=.*; expected True or False"):
            make(flag)
    assert make(np.bool_(True)).undirected is True


@pytest.mark.parametrize(
    ("weight", "words"), [(None, "weights: none"), ("w", "weights: column w")], ids=["no weights", "weights"]
)
def test_explain_and_the_first_line_tell_the_weights(weight, words, capsys):
    from lotan.nn import GCN

    vertices = pd.DataFrame({"id": [1, 2], "features": [[1.0], [2.0]], "label": [0, 1], "split": ["train", "train"]})
    graph = Graph(vertices, pd.DataFrame({"src": [1], "dst": [2], "w": [2.0]}), weight=weight)
    trainer = Trainer(GCN(1, 2, 1, 2), graph, epochs=1, engine="local")
    assert words in trainer.explain()
    trainer.fit()
    assert words in capsys.readouterr().err.splitlines()[0]
