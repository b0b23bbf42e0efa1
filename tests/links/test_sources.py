"""The links of a graph are the same whether its tables are in memory, in files or in Spark."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lotan
from lotan.links.examples import link_graph
from tests.links.graphs import columns


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    held = columns(11, vertices=12, edges=40)
    vertices = pd.DataFrame({"id": range(12), "features": list(held["features"])})
    splits = np.array(["train", "val", "test"])[held["edge_split"]]
    edges = pd.DataFrame({"src": held["src"], "dst": held["dst"], "split": splits, "relation": held["relation"]})
    return vertices.sample(frac=1, random_state=1), edges


def content(graph: lotan.Graph) -> set[tuple[int, int, str, int]]:
    links = link_graph(graph, lotan.LinkPrediction()).links
    names = [links.names[number] for number in links.numbers]
    return set(zip(links.src.tolist(), links.dst.tolist(), names, links.split.tolist(), strict=True))


def test_files_and_numbers_of_relations(tmp_path: Path) -> None:
    vertices, edges = tables()
    graph = lotan.Graph(vertices, edges)
    assert len(content(graph)) == 40
    for name, table in (("vertices", vertices), ("edges", edges)):
        table.to_parquet(tmp_path / f"{name}.parquet")
    assert content(lotan.Graph.read(tmp_path)) == content(graph)
    codes = edges.assign(relation=edges["relation"].map({"a": 7, "b": -2, "c": 30}))
    assert link_graph(lotan.Graph(vertices, codes), lotan.LinkPrediction()).links.names == (-2, 7, 30)


def test_a_graph_for_labels_reads_neither_column() -> None:
    vertices, edges = tables()
    odd = edges.assign(split=0.5, relation=[[1]] * len(edges))
    assert lotan.Graph(vertices, odd).statistics.edges == 40


@pytest.mark.spark
def test_a_graph_in_spark_is_collected(spark) -> None:
    vertices, edges = tables()
    graph = lotan.Graph(spark.createDataFrame(vertices), spark.createDataFrame(edges))
    assert content(graph) == content(lotan.Graph(vertices, edges))
    task, model = lotan.LinkPrediction(decoder="distmult", negatives=5), lotan.nn.GraphSAGE(5, 4, 1, 4)
    run = lotan.Trainer(model, graph, task=task, epochs=1, progress=False).fit()
    assert len(run.predict_links({"src": [0], "dst": [1], "relation": ["a"]})) == 1


def edges_of(graph: lotan.Graph) -> list[tuple]:
    edges = graph.linked_columns()[1]
    weight = np.ones(len(edges.src)) if edges.weight is None else edges.weight
    columns = (one.tolist() for one in (edges.src, edges.dst, edges.split, edges.relation, weight))
    return sorted(zip(*columns, strict=True))


@pytest.mark.parametrize("form", ["tables", "arrays", "files", pytest.param("spark", marks=pytest.mark.nightly)])
def test_a_saved_graph_keeps_splits_and_relations(form: str, tmp_path: Path, request) -> None:
    vertices, edges = tables()
    edges["weight"] = np.arange(len(edges)) + 1.0
    graph = lotan.Graph(vertices, edges, weight="weight")
    if form == "arrays":
        held = columns(11, vertices=12, edges=40)
        graph = lotan.Graph.from_arrays(**held, weight=np.arange(40) + 1.0)
    elif form == "files":
        vertices.to_parquet(tmp_path / "vertices.parquet")
        edges.to_parquet(tmp_path / "edges.parquet")
        graph = lotan.Graph.read(tmp_path)
    elif form == "spark":
        spark = request.getfixturevalue("spark")
        graph = lotan.Graph(spark.createDataFrame(vertices), spark.createDataFrame(edges), weight="weight")
    graph.save(tmp_path / "saved")
    again = lotan.Graph.read(tmp_path / "saved")
    assert edges_of(again) == edges_of(graph)
    assert again.statistics.weighted
    model = lotan.nn.GraphSAGE(5, 4, 1, 4)
    task = lotan.LinkPrediction(decoder="distmult", negatives=5)
    runs = [lotan.Trainer(deepcopy(model), one, task=task, epochs=1, progress=False).fit() for one in (graph, again)]
    assert runs[0].metrics == runs[1].metrics


def test_reverses_are_saved_with_the_split_and_relation_of_their_edges(tmp_path: Path) -> None:
    vertices, edges = tables()
    once = edges[edges["src"] < edges["dst"]]
    graph = lotan.Graph(vertices, once, undirected=True)
    graph.save(tmp_path / "saved")
    again = edges_of(lotan.Graph.read(tmp_path / "saved"))
    given = edges_of(graph)
    assert again == sorted(given + [(dst, src, *more) for src, dst, *more in given])
    odd = lotan.Graph(vertices, edges.assign(split=0.5, relation=[[1]] * len(edges)))
    odd.save(tmp_path / "odd")
    assert lotan.Graph.read(tmp_path / "odd").linked_columns()[1].split is None
