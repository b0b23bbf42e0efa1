"""Messages that are deeper or branch more than is translated: collected instead, for a reason, or summed as they are."""

from __future__ import annotations

import pytest

from planner.edge_values import OPERATIONS_DEEP
from planner.nodes import Aggregate, Elementwise, Scatter, StaticColumn
from planner.rules.push_down_edges import declined, push_down_edges
from planner.spec import ValueType
from planner.steps.edge_sum import EdgeSum

SOURCE, DESTINATION = (
    Scatter(StaticColumn("features", ValueType("vertex", (4,))), end, "graph") for end in ("source", "destination")
)


def operation(name, *arguments):
    return Elementwise(f"aten.{name}", arguments, (), arguments[0].output)


def rounds(count):
    """Of z = tanh(z + x_j), two operations each, after one."""
    message = operation("sub.Tensor", SOURCE, DESTINATION)
    for _ in range(count):
        message = operation("tanh.default", operation("add.Tensor", message, SOURCE))
    return Aggregate(message, "sum", "graph")


def test_a_message_as_deep_as_is_translated_goes_to_the_graph_engine():
    assert isinstance(push_down_edges(rounds((OPERATIONS_DEEP - 1) // 2)), EdgeSum)


@pytest.mark.parametrize("count", [OPERATIONS_DEEP // 2, 2000])
def test_a_deeper_message_is_collected_for_a_reason(count):
    node = rounds(count)
    assert push_down_edges(node) is None
    assert f"is {2 * count + 1} operations deep on each edge" in declined(node)


def test_a_product_with_itself_is_not_opened_without_end():
    """Of 2**40 factors."""
    message = SOURCE
    for _ in range(40):
        message = operation("mul.Tensor", message, message)
    assert isinstance(push_down_edges(Aggregate(message, "sum", "graph")), EdgeSum)
