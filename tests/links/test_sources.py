"""The links of a graph are the same whether its tables are in memory, in files or in Spark."""

from __future__ import annotations

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
