"""Ids of several types of vertices in one table become the ids that they were given with again."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lotan.errors import GraphError
from lotan.graph.given_types import GivenTypes, check_types, task_of
from planner.vertex_types import VertexTypes

WRITES = ("author", "writes", "paper")
TYPES = VertexTypes(("author", "paper"), (1, 2), (WRITES,), "paper")
AUTHORS = np.array(["ann", "bob", "eve"], dtype=object)
PAPERS = np.array([-4, 10, 20])
IN_MEMORY = GivenTypes(TYPES, ("string", "bigint"), (AUTHORS, PAPERS))
IN_SPARK = GivenTypes(TYPES, ("string", "bigint"))
NUMBERS = np.arange(6)
TEXTS = np.array([f"author:{name}" for name in AUTHORS] + [f"paper:{one}" for one in PAPERS], dtype=object)
TABLES = pytest.mark.parametrize(("given", "joint"), [(IN_MEMORY, NUMBERS), (IN_SPARK, TEXTS)], ids=["memory", "spark"])


@TABLES
def test_each_row_has_its_type_and_the_id_it_was_given_with(given: GivenTypes, joint: np.ndarray) -> None:
    order = np.random.default_rng(0).permutation(6)
    names, ids = given.given_ids(joint[order])
    expected = [("author", one) for one in AUTHORS] + [("paper", one) for one in PAPERS.tolist()]
    assert list(zip(names, ids, strict=True)) == [expected[place] for place in order]
    assert all(type(one) is (str if name == "author" else int) for name, one in zip(names, ids, strict=True))


@TABLES
@pytest.mark.parametrize(("number", "ids"), [(0, AUTHORS), (1, PAPERS)], ids=["author", "paper"])
def test_rows_of_a_type_are_those_of_its_ids(
    given: GivenTypes, joint: np.ndarray, number: int, ids: np.ndarray
) -> None:
    ascending = np.sort(joint)  # as texts, paper:-4 comes before paper:10, and 10 before 20
    places, found = given.rows_of_type(number, ascending)
    assert found.tolist() == ids.tolist()
    names, back = given.given_ids(ascending[places])
    assert set(names) == {TYPES.names[number]}
    assert back.tolist() == ids.tolist()


@TABLES
def test_a_vertex_with_a_label_is_found_by_its_own_id(given: GivenTypes, joint: np.ndarray) -> None:
    for place, one in enumerate(PAPERS.tolist()):
        assert given.joint_id(one) == joint[3 + place]
    assert given.joint_id("10") is None  # ids of papers are integers
    assert given.id_type == "bigint"


def test_an_id_without_a_vertex_is_not_found_in_memory() -> None:
    assert IN_MEMORY.joint_id(11) is None
    assert IN_MEMORY.joint_id(21) is None


@TABLES
def test_rows_of_the_task_are_those_with_labels(given: GivenTypes, joint: np.ndarray) -> None:
    order = np.random.default_rng(1).permutation(6)
    frame = pd.DataFrame({"id": joint[order], "score": order * 0.5})
    found = given.of_task(frame).sort_values("id", ignore_index=True)
    assert found["id"].tolist() == PAPERS.tolist()
    assert found["score"].tolist() == [1.5, 2.0, 2.5]


@pytest.mark.parametrize(
    ("vertices", "edges", "message"),
    [
        ([], {}, "Expected tables by type"),
        ({}, {WRITES: 1}, "There are no vertices"),
        ({"author": 1}, {}, "There are no edges"),
        ({"a:b": 1}, {WRITES: 1}, "'a:b' cannot be the name"),
        ({"author": 1}, {("author", "paper"): 1}, "is not a relation"),
        ({"author": 1}, {WRITES: 1}, "there are no vertices of type 'paper'"),
    ],
)
def test_tables_of_unknown_types_are_refused(vertices: object, edges: object, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        check_types(vertices, edges)


def test_the_task_is_the_only_type_that_it_may_be() -> None:
    names = ("author", "paper")
    assert task_of("author", ["paper"], ["paper"], names) == "author"
    assert task_of(None, ["author", "paper"], ["paper"], names) == "paper"
    assert task_of(None, ["author"], [], names) == "author"
    assert task_of(None, [], [], ("paper",)) == "paper"
    for given, labelled, message in (
        ("venue", [], "task_type is 'venue'"),
        (None, ["author", "paper"], "say which to train on"),
        (None, [], "No vertices have labels"),
    ):
        with pytest.raises(GraphError, match=message):
            task_of(given, labelled, [], names)
