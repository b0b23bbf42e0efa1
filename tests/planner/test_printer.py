"""The text of operator graphs: of deep ones no longer and no wider than need be."""

from __future__ import annotations

import re

from planner.nodes import Elementwise, Propagate, StaticColumn
from planner.printer import WIDTH, tree
from planner.spec import ValueType

X = StaticColumn("features", ValueType("vertex", (4,)))


def deep(layers):
    """Each layer adds something of its own, so that it has two inputs with lines."""
    node = X
    for layer in range(layers):
        own = Propagate(
            Elementwise("aten.mul.Tensor", (X, float(layer)), (), X.output), "graph", layer=f"layers.{layer}"
        )
        node = Elementwise("aten.add.Tensor", (node, own), (), X.output)
    return node


def test_text_grows_with_layers_and_stays_within_the_page():
    texts = {layers: tree(deep(layers)) for layers in (200, 400)}
    assert max(map(len, texts[400])) <= WIDTH
    assert sum(map(len, texts[400])) < 2.1 * sum(map(len, texts[200]))


def test_every_operator_is_there_once_and_every_name_is_told_before_it_is_read():
    lines = tree(deep(100))
    assert sum("mul" in line for line in lines) == sum("add" in line for line in lines) == 100
    told = set()
    for line in lines:
        told |= {new.group(1) for new in re.finditer(r"\b(r\d+) := ", line)}
        read = set(re.findall(r"\br\d+\b", line))
        assert read <= told
    assert told


def test_shallow_graphs_need_no_names():
    assert not [line for line in tree(deep(10)) if ":=" in line]
