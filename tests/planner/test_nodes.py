from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from planner.build import build
from planner.nodes import (
    Aggregate,
    Dropout,
    Elementwise,
    Propagate,
    Scatter,
    StaticColumn,
    consumers,
    topological,
    transform,
)
from planner.spec import ValueType
from tests.planner.specs import gcn

X = StaticColumn("features", ValueType("vertex", (4,)))


def relu(x):
    return Elementwise("aten.relu.default", (x,), (), x.output)


def scaled(x, factor):
    return Elementwise("aten.mul.Tensor", (x, factor), (), x.output)


def test_equal_fields_are_one_object():
    assert relu(X) is relu(X)
    assert scaled(X, 1) is not scaled(X, 1.0)
    assert scaled(X, 1) is not scaled(X, True)
    assert scaled(X, 0.0) is not scaled(X, -0.0)


def test_fields_are_given_once():
    with pytest.raises(TypeError):
        StaticColumn("features", X.output, name="other")
    with pytest.raises(TypeError):
        StaticColumn("features", X.output, "other")


def test_fields_may_be_given_by_name_in_any_order():
    assert StaticColumn(type=X.output, name=X.name) is X


def test_equal_fields_are_one_object_in_many_threads():
    with ThreadPoolExecutor(8) as pool:
        for number in range(50):
            made = list(pool.map(lambda _, n=number: scaled(X, 1000 + n), range(64)))
            assert all(node is made[0] for node in made)


def test_a_copy_is_the_same_object():
    node = relu(scaled(X, 2.0))
    assert pickle.loads(pickle.dumps(node)) is node
    assert copy.copy(node) is node
    assert copy.deepcopy(node) is node


def test_walks_are_linear_in_distinct_nodes():
    node = X
    for _ in range(2000):  # a tree of 2**2000 paths, and deeper than Python's recursion limit
        node = Elementwise("aten.add.Tensor", (node, node), (), node.output)
    assert len(topological(node)) == 2001
    assert transform(node, lambda _: None) is node


def test_transform_sees_rewritten_children():
    y = StaticColumn("other", X.output)
    changed = transform(relu(scaled(X, 2.0)), lambda node: y if node is X else None)
    assert changed is relu(scaled(y, 2.0))


def test_children_are_found_inside_lists():
    joined = Elementwise("aten.cat.default", ((relu(X), X), -1), (), ValueType("vertex", (8,)))
    assert joined.children == (relu(X), X)
    assert joined.with_children({X: relu(X)}).children == (relu(X), relu(X))


def test_consumers_lists_each_reader_once():
    total = Elementwise("aten.add.Tensor", (relu(X), relu(X)), (), X.output)
    assert consumers(topological(total)) == {X: [relu(X)], relu(X): [total], total: []}


def test_building_twice_gives_the_same_graph():
    assert build(gcn()) is build(gcn())
    assert build(gcn()) is not build(gcn(training=False))


def test_types_follow_the_rows():
    scattered = Scatter(X, "source", "self_loops")
    assert scattered.output == ValueType("edge", (4,), edges="self_loops")


def test_the_output_of_a_chain_that_is_deeper_than_python_recurses():
    node = X
    for _ in range(2000):
        node = Propagate(Dropout(Aggregate(Scatter(node, "source", "graph"), "sum", "graph"), 0.5, 0), "graph")
    assert node.output == X.output
