"""Graphs with several types of vertices: how their tables become one graph, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import lotan
from lotan.errors import GraphError
from lotan.graph.hetero_pyg import _plain_ids as plain_ids
from lotan.validation.check import check_graph
from tests.tracing.hetero_models import ATTRIBUTES, COUNTS, RELATIONS, WIDTHS, messy_data, with_attributes

PAPERS = pd.DataFrame(
    {
        "id": [30, 10, 20],
        "features": [[3.0, 1.0], [1.0, 1.0], [2.0, 1.0]],
        "label": [1, 0, None],
        "split": ["train", "val", None],
    }
)
AUTHORS = pd.DataFrame({"id": ["bob", "ann"], "features": [[2.0], [1.0]]})
WRITES = pd.DataFrame({"src": ["bob", "ann", "bob"], "dst": [10, 30, 10]})
WRITE = ("author", "writes", "paper")


def small(**options: Any) -> lotan.HeteroGraph:
    return lotan.HeteroGraph({"paper": PAPERS, "author": AUTHORS}, {WRITE: WRITES}, **options)


def test_all_types_lie_in_one_table_with_the_number_of_the_type_last() -> None:
    graph = small()
    arrays = graph.arrays()
    assert graph.vertex_types.names == ("author", "paper")
    assert arrays.features.tolist() == [[1, 0, 0], [2, 0, 0], [1, 1, 1], [2, 1, 1], [3, 1, 1]]  # by type, then by id
    assert arrays.label.tolist() == [-1, -1, 0, -1, 1]
    assert arrays.split.tolist() == [-1, -1, 1, -1, 0]
    assert sorted(zip(arrays.src.tolist(), arrays.dst.tolist(), strict=True)) == [(0, 4), (1, 2), (1, 2)]
    assert arrays.edge_type.tolist() == [0, 0, 0]
    assert graph.statistics.relations == (3,)


def test_types_and_relations_have_one_order() -> None:
    graph = lotan.HeteroGraph({"author": AUTHORS, "paper": PAPERS}, {WRITE: WRITES})
    assert graph.vertex_types == small().vertex_types


def test_a_relation_without_weights_weighs_one() -> None:
    cites = pd.DataFrame({"src": [10], "dst": [20], "w": [0.5]})
    graph = lotan.HeteroGraph(
        {"paper": PAPERS, "author": AUTHORS}, {WRITE: WRITES, ("paper", "cites", "paper"): cites}, weight="w"
    )
    arrays = graph.arrays()
    assert dict(zip(arrays.edge_type.tolist(), arrays.weight.tolist(), strict=True)) == {0: 1.0, 1: 0.5}


def test_numbers_that_are_no_classes_are_targets_though_other_types_have_none() -> None:
    papers = PAPERS.assign(label=[1.0, 2.0, 3.0])
    graph = lotan.HeteroGraph({"paper": papers, "author": AUTHORS}, {WRITE: WRITES})
    assert graph.labels.task == "regression"
    assert graph.for_task("classification").labels.task == "classification"


def test_pyg_both_ways() -> None:
    data = messy_data()
    data["author"].n_id = torch.arange(COUNTS["author"]) + 100
    data["paper", "cites", "paper"].edge_weight = torch.rand(30)
    again = lotan.HeteroGraph.from_pyg(data).to_pyg()
    for name in WIDTHS:
        assert torch.equal(again[name].x, data[name].x)
    assert again["author"].n_id.tolist() == data["author"].n_id.tolist()
    assert torch.equal(again["paper"].train_mask, data["paper"].train_mask)
    for relation in RELATIONS:
        given, found = (one[relation].edge_index for one in (data, again))
        assert sorted(found.t().tolist()) == sorted(given.t().tolist())
    assert again["paper", "cites", "paper"].edge_weight.sum() == pytest.approx(
        float(data["paper", "cites", "paper"].edge_weight.sum())
    )


def test_a_folder_both_ways(tmp_path: Path) -> None:
    graph = small()
    graph.save(tmp_path / "graph")
    assert (tmp_path / "graph" / "edges" / "author__writes__paper.parquet").is_file()
    for read in (lotan.HeteroGraph.read, lotan.Graph.read):
        found = read(tmp_path / "graph").arrays()
        assert np.array_equal(found.features, graph.arrays().features)
        assert np.array_equal(found.src, graph.arrays().src)
        assert np.array_equal(found.label, graph.arrays().label)
    with pytest.raises(GraphError, match="has a graph already"):
        graph.save(tmp_path / "graph")
    graph.save(tmp_path / "graph", overwrite=True)


def test_pickled() -> None:
    again = pickle.loads(pickle.dumps(small()))
    assert again.vertex_types == small().vertex_types
    assert np.array_equal(again.arrays().src, small().arrays().src)


def test_says_what_it_is() -> None:
    assert repr(small()).splitlines()[1:] == [
        "  vertices: author 1 features, paper 2 features; labels: paper",
        "  edges: author -> writes -> paper",
    ]


@pytest.mark.parametrize(
    ("vertices", "edges", "options", "said"),
    [
        (
            {},
            {("autor", "writes", "paper"): WRITES},
            {},
            r"autor -> writes -> paper: there are no vertices of type 'autor'",
        ),
        (
            {},
            {WRITE: WRITES.replace("bob", "eve")},
            {},
            r"writes -> paper: edges.src: 1 ids are not among .* 'author' .*'eve'",
        ),
        ({}, {WRITE: WRITES.replace(30, 31)}, {}, r"edges.dst: 1 ids are not among the vertices of type 'paper' .*31"),
        ({}, {WRITE: WRITES.assign(src=[1, 2, 3])}, {}, r"author -> writes -> paper: edges.src"),
        ({}, {WRITE: WRITES.drop(columns="dst")}, {}, r"author -> writes -> paper: .*dst"),
        (
            {},
            {("author", "paper"): WRITES},
            {},
            r"\('author', 'paper'\) is not a relation; expected the type of the sources",
        ),
        (
            {"author": AUTHORS.assign(label=[0, 1], split=["train", "val"])},
            {},
            {},
            r"types author, paper have labels; .*task_type='author'",
        ),
        ({}, {}, {"task_type": "venue"}, r"task_type is 'venue'; expected one of the types of vertices: author, paper"),
        ({"paper": PAPERS.drop(columns=["label", "split"])}, {}, {}, r"No vertices have labels; .*task_type="),
        ({"author": AUTHORS.assign(id=["ann", "ann"])}, {}, {}, r"vertices of type 'author': .*more than once"),
        ({"author": AUTHORS.assign(features=[[1.0], [1.0, 2.0]])}, {}, {}, r"vertices of type 'author': .*features"),
        ({"a:b": AUTHORS}, {}, {}, r"'a:b' cannot be the name of a type"),
    ],
)
def test_refused(vertices: dict, edges: dict, options: dict, said: str) -> None:
    given = {"paper": PAPERS, "author": AUTHORS} | vertices
    with pytest.raises(GraphError, match=said):
        lotan.HeteroGraph(given, edges or {WRITE: WRITES}, **options)


def test_labels_in_two_types_are_told_apart_by_name() -> None:
    authors = AUTHORS.assign(label=[0, 1], split=["train", "val"])
    graph = lotan.HeteroGraph({"paper": PAPERS, "author": authors}, {WRITE: WRITES}, task_type="author")
    assert graph.arrays().label.tolist() == [1, 0, -1, -1, -1]


def test_no_tables_by_type() -> None:
    with pytest.raises(GraphError, match=r"Expected tables by type: HeteroGraph\(\{"):
        lotan.HeteroGraph(PAPERS.to_numpy(), WRITES.to_numpy())


def test_attributes_of_edges_go_there_and_back(tmp_path: Path) -> None:
    data = with_attributes()
    graph = lotan.HeteroGraph.from_pyg(data)
    assert graph.vertex_types.edge_widths == tuple(ATTRIBUTES.get(r, 0) for r in graph.vertex_types.relations)
    graph.save(tmp_path / "graph")
    for back in (graph.to_pyg(), lotan.HeteroGraph.read(tmp_path / "graph").to_pyg()):
        assert set(back.edge_attr_dict) == set(ATTRIBUTES)
        for relation in ATTRIBUTES:
            edges = [
                sorted(map(tuple, torch.cat([one[relation].edge_index.t(), one[relation].edge_attr], dim=1).tolist()))
                for one in (data, back)
            ]
            assert edges[0] == edges[1]


def test_attributes_of_edges_that_do_not_fit_are_refused() -> None:
    data = with_attributes()
    data[RELATIONS[0]].edge_attr = data[RELATIONS[0]].edge_attr[:-1, 0]
    with pytest.raises(
        GraphError, match=r"edge_attr: has shape \[29\], but there are 30 edges; expected \[30, width\] or \[30\]"
    ):
        lotan.HeteroGraph.from_pyg(data)
    with pytest.raises(GraphError, match="edge_features is 'how', and no relation has attributes of this name"):
        small(edge_features="how")
    holes = WRITES.assign(how=[[1.0], None, [2.0]])
    with pytest.raises(GraphError, match=r"edges author -> writes -> paper: edges\.how"):
        lotan.HeteroGraph({"paper": PAPERS, "author": AUTHORS}, {WRITE: holes}, edge_features="how")


@pytest.mark.parametrize(
    ("table", "changed", "words"),
    [
        ("edges", {"how": [[1.0], [np.nan], [2.0]]}, r"edges\.how: 1 .*author 'ann' -> writes -> paper 30: nan"),
        ("edges", {"weight": [1.0, np.inf, 2.0]}, r"edges\.weight: 1 .*author 'ann' -> writes -> paper 30: inf"),
        ("authors", {"features": [[np.nan], [1.0]]}, r"vertices\.features: 1 .*id author 'bob': nan"),
        ("papers", {"label": [1, 7, None]}, r"vertices\.label: 1 .*id paper 10: 7"),
        ("papers", {"split": ["train", "val", "test"]}, r"vertices\.label: 1 .*id paper 20: in 'test'"),
    ],
)
def test_errors_about_values_name_the_type_the_relation_and_the_given_ids(
    table: str, changed: dict[str, Any], words: str
) -> None:
    tables = {"papers": PAPERS, "authors": AUTHORS, "edges": WRITES.assign(how=[[1.0], [1.5], [2.0]], weight=1.0)}
    tables[table] = tables[table].assign(**changed)
    graph = lotan.HeteroGraph(
        {"paper": tables["papers"], "author": tables["authors"]}, {WRITE: tables["edges"]}, edge_features="how"
    )
    with pytest.raises(GraphError, match=words):
        check_graph(graph, "classification", 2, None)


def test_texts_of_digits_stay_texts_unless_they_are_numbers_as_written() -> None:
    assert plain_ids(np.array(["a:7", "a:10"]), "a").tolist() == [7, 10]
    assert plain_ids(np.array(["a:007", "a:7"]), "a").tolist() == ["007", "7"]
    assert plain_ids(np.array(["a:" + "9" * 30]), "a").tolist() == ["9" * 30]


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (
            torch.tensor([[0.0], [1.0]]),
            r"edge_index: is float32 of shape \[2, 1\]; expected integers of shape \[2, num_edges\]",
        ),
        (torch.zeros(3, 4, dtype=torch.long), r"edge_index: is int64 of shape \[3, 4\]"),
        (torch.zeros(4, dtype=torch.long), r"edge_index: is int64 of shape \[4\]"),
        (torch.tensor([[0], [99]]), "edge_index: names vertex 99 of type 'paper'; expected 0 to 19"),
    ],
)
def test_edges_of_another_type_or_shape_are_refused(index: torch.Tensor, words: str) -> None:
    data = messy_data()
    data["author", "writes", "paper"].edge_index = index
    with pytest.raises(GraphError, match=words):
        lotan.HeteroGraph.from_pyg(data)


@pytest.mark.parametrize(
    ("relation", "said"),
    [
        (("a/b", "writes", "paper"), "a/b"),
        (("author", "is__by", "paper"), "is__by"),
        (("..", "writes", "paper"), r"\.\."),
    ],
)
def test_a_name_that_no_file_can_have_is_refused_before_anything_is_written(
    relation: tuple[str, str, str], said: str, tmp_path: Path
) -> None:
    graph = lotan.HeteroGraph({"paper": PAPERS, relation[0]: AUTHORS}, {relation: WRITES})
    with pytest.raises(GraphError, match=said):
        graph.save(tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("edge_weight", torch.ones(2, 2), "one number each"),
    ],
)
def test_misshapen_edges_of_pyg_are_refused(attribute: str, value: torch.Tensor, said: str) -> None:
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    data["author"].x, data["paper"].x = torch.ones(4, 2), torch.ones(4, 1)
    data[WRITE].edge_index = torch.zeros(2, 4, dtype=torch.long)
    data[WRITE][attribute] = value
    with pytest.raises(GraphError, match=said):
        lotan.HeteroGraph.from_pyg(data)
