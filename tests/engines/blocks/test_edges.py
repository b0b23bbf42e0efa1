from __future__ import annotations

import pytest

import lotan
from lotan import nn
from lotan.engines.blocks.edges import passing, postfix
from planner.physical import Column
from planner.steps.edge_expression import EdgeExpressionStep
from planner.steps.edge_sum import EdgeSumStep
from planner.steps.scaled_propagate import EdgeDotStep, ScaledPropagateStep
from planner.steps.segment_softmax import SegmentSoftmaxGradientStep, SegmentSoftmaxStep
from tests.exactness.cases import WIDTH, sample

MODELS = {"GAT": nn.GAT(WIDTH, 8, 2, 3, heads=4, dropout=0.5), "max": nn.GraphSAGE(WIDTH, 8, 2, 3, aggr="max")}


@pytest.mark.parametrize("model", MODELS)
def test_explain_shows_no_collect_for_attention_and_maxima(model):
    plans = {
        engine: lotan.Trainer(MODELS[model], sample(3).graph, engine=engine).explain(stage="all")
        for engine in ("rows", "blocks")
    }
    assert "Collect(" in plans["rows"]
    assert "Collect(" not in plans["blocks"]


def on_edges(name: str) -> Column:
    return Column(name, (2,), edges="graph")


def test_what_one_task_alone_reads_passes_and_what_a_source_asks_for_is_held():
    rows = Column("rows", (4,))
    steps = (
        EdgeExpressionStep(on_edges("scores"), "graph", ("source", "a")),
        SegmentSoftmaxStep(on_edges("shares"), "graph", "scores"),
        ScaledPropagateStep(rows, "graph", "h", "shares", 2),
        ScaledPropagateStep(Column("d_h", (4,)), "graph", "d_rows", "shares", 2, reverse=True),
        EdgeDotStep(on_edges("d_shares"), "graph", "h", "d_rows"),
        SegmentSoftmaxGradientStep(on_edges("d_scores"), "graph", "shares", "d_shares"),
        EdgeSumStep(Column("d_a", (2,)), "graph", "d_scores", "source"),
    )
    assert passing(steps) == {"scores", "d_shares"}
    assert passing(steps[:3]) == {"scores", "shares"}  # as in evaluation
    assert passing((*steps[:3], ScaledPropagateStep(rows, "graph", "rows", "shares", 2))) == {"scores"}


def test_numbers_of_an_expression_are_those_that_java_reads():
    places: dict[str, list[str]] = {"source": [], "destination": [], "edge": []}
    numbers = (1e-9, 0.1, float("inf"), float("-inf"))
    words = [postfix(("constant", number), places).split(":")[1] for number in numbers]
    assert words == ["1e-09", "0.1", "Infinity", "-Infinity"]
