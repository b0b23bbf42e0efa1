"""Steps on edges in memory against plain torch over an edge list, in runs of a few edges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.utils import softmax

from lotan.engines.local import edge_columns, entry_sums
from lotan.engines.local.columns import Columns
from lotan.engines.local.crew import Crew
from lotan.engines.local.edge_columns import EdgeColumns
from lotan.engines.local.topology import Edges, EdgeSets
from lotan.stages.randomness import Randomness
from planner.physical import Column
from planner.steps.edge_dropout import EdgeDropoutStep
from planner.steps.edge_expression import EdgeExpressionStep
from planner.steps.edge_sum import EdgeSumStep
from planner.steps.extreme import ExtremeGradientStep, ExtremeStep
from planner.steps.scaled_propagate import EdgeDotStep, ScaledPropagateStep
from planner.steps.segment_softmax import SegmentSoftmaxGradientStep, SegmentSoftmaxStep

VERTICES, HEADS, CHANNELS = 30, 3, 4
WIDTH = HEADS * CHANNELS
CREW = Crew(threads=3)


@pytest.fixture(params=[0, 1, 200, 2000])
def edges(request: pytest.FixtureRequest) -> Edges:
    """A hub, parallel edges, self-loops and vertices without edges."""
    random = np.random.default_rng(request.param)
    src, dst = random.integers(0, VERTICES - 5, (2, request.param))
    dst[: request.param // 2] = 3
    order = np.lexsort((src, dst))
    return Edges(VERTICES, src[order], dst[order], random.random(request.param).astype(np.float32))


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven edges a run at the width of a row, so that runs begin and end inside a destination's edges."""
    monkeypatch.setattr(edge_columns, "RUN_BYTES", 7 * 4 * WIDTH)
    monkeypatch.setattr(entry_sums, "RUN_ROWS", 3)


@pytest.fixture(autouse=True, scope="module")
def threads() -> Iterator[None]:
    yield
    CREW.close()


def running(edges: Edges, epoch: int = 0, crew: Crew = CREW) -> EdgeColumns:
    return EdgeColumns(edges, torch.arange(VERTICES) * 7919, Randomness(1, epoch), crew, Columns())


def ends(edges: Edges) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(edges.src), torch.from_numpy(edges.dst)


def drawn(rows: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


OF_EDGES, OF_VERTICES = Column("out", (HEADS,), edges="graph"), Column("out", (HEADS, CHANNELS))


def test_an_expression_reads_both_ends_the_weight_and_edge_columns(edges: Edges) -> None:
    inner = ("add", ("mul", ("source", "a"), ("weight",)), ("sub", ("destination", "b"), ("edge", "e")))
    step = EdgeExpressionStep(OF_EDGES, "graph", ("mul", ("leaky_relu", inner, 0.2), ("constant", 0.5)))
    src, dst = ends(edges)
    a, b, e = drawn(VERTICES, HEADS, 1), drawn(VERTICES, HEADS, 2), drawn(len(src), HEADS, 3)
    expected = torch.nn.functional.leaky_relu(a[src] * torch.from_numpy(edges.weight)[:, None] + b[dst] - e, 0.2) * 0.5
    torch.testing.assert_close(running(edges).run(step, {"a": a, "b": b, "e": e}), expected)


def test_weights_of_a_graph_without_are_one(edges: Edges) -> None:
    plain = Edges(VERTICES, edges.src, edges.dst, None)
    found = running(plain).run(EdgeExpressionStep(OF_EDGES, "graph", ("weight",)), {})
    assert torch.equal(found, torch.ones(len(edges.src), HEADS))


def test_softmax_and_its_gradient(edges: Edges) -> None:
    src, dst = ends(edges)
    scores = (100 * drawn(len(src), HEADS)).requires_grad_()  # so large that exp without the maximum overflows
    expected = softmax(scores, dst, num_nodes=VERTICES)
    gradient = drawn(len(src), HEADS, 1)
    (pulled,) = torch.autograd.grad(expected, scores, gradient)
    columns = {"s": scores.detach(), "g": gradient}
    columns["p"] = running(edges).run(SegmentSoftmaxStep(OF_EDGES, "graph", "s"), columns)
    torch.testing.assert_close(columns["p"], expected.detach())
    step = SegmentSoftmaxGradientStep(OF_EDGES, "graph", "p", "g")
    torch.testing.assert_close(running(edges).run(step, columns), pulled, rtol=1e-5, atol=1e-6)


def test_dropout_keeps_the_same_numbers_of_values_and_gradients(edges: Edges) -> None:
    step = EdgeDropoutStep(OF_EDGES, "graph", "x", 0.5, key=3)
    ones = torch.ones(len(edges.src), HEADS)
    kept = running(edges).run(step, {"x": ones})
    assert set(kept.unique().tolist()) <= {0.0, 2.0}
    x = drawn(len(edges.src), HEADS)
    assert torch.equal(running(edges).run(step, {"x": x}), x * kept)
    if len(x) > 100:
        assert not torch.equal(running(edges, epoch=1).run(step, {"x": ones}), kept)


@pytest.mark.parametrize("end", ["source", "destination"])
def test_sums_over_the_edges_of_an_end(edges: Edges, end: str) -> None:
    x = drawn(len(edges.src), HEADS)
    index = ends(edges)[0 if end == "source" else 1]
    found = running(edges).run(EdgeSumStep(Column("out", (HEADS,)), "graph", "x", end), {"x": x})
    torch.testing.assert_close(found, torch.zeros(VERTICES, HEADS).index_add(0, index, x))


@pytest.mark.parametrize("most", [0, edge_columns.MOST_AT_ONCE], ids=["head by head", "all heads at once"])
def test_scaled_propagate_and_its_adjoints(edges: Edges, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_columns, "MOST_AT_ONCE", most)
    src, dst = ends(edges)
    x = drawn(VERTICES, WIDTH).view(VERTICES, HEADS, CHANNELS).requires_grad_()
    scales = drawn(len(src), HEADS, 1).requires_grad_()
    expected = torch.zeros_like(x).index_add(0, dst, x[src] * scales[:, :, None])
    gradient = drawn(VERTICES, WIDTH, 2).view_as(x)
    to_x, to_scales = torch.autograd.grad(expected, (x, scales), gradient)
    step = ScaledPropagateStep(OF_VERTICES, "graph", "x", "s", HEADS)
    columns = {"x": x.detach(), "s": scales.detach(), "g": gradient}
    torch.testing.assert_close(running(edges).run(step, columns), expected.detach(), rtol=1e-5, atol=1e-5)
    reverse = replace(step, input="g", reverse=True)
    torch.testing.assert_close(running(edges).run(reverse, columns), to_x, rtol=1e-5, atol=1e-5)
    dots = running(edges).run(EdgeDotStep(OF_EDGES, "graph", "x", "g"), columns)
    torch.testing.assert_close(dots, to_scales, rtol=1e-5, atol=1e-5)
    for rows in (12, VERTICES):  # of a level, say
        found = running(edges).run(reverse, columns, rows)
        torch.testing.assert_close(found, to_x[:rows], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("most", [VERTICES * HEADS - 1, 2000 * HEADS])
def test_few_edges_among_many_vertices_go_head_by_head(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix with a row for every head of every vertex would be larger than the graph."""
    monkeypatch.setattr(edge_columns, "MOST_AT_ONCE", most)
    few = Edges(VERTICES, np.array([3, 4]), np.array([0, 1]), None).first(2)
    columns = {"x": drawn(VERTICES, WIDTH), "s": drawn(2, HEADS), "g": drawn(2, WIDTH, 1)}
    step = ScaledPropagateStep(OF_VERTICES, "graph", "x", "s", HEADS)
    found = running(few).run(step, columns, 2)
    expected = (columns["x"][3:5].view(2, HEADS, -1) * columns["s"][:, :, None]).view(2, HEADS, CHANNELS)
    torch.testing.assert_close(found, expected)
    back = running(few).run(replace(step, input="g", reverse=True), columns, VERTICES)
    spread = torch.zeros(VERTICES, HEADS, CHANNELS)
    spread[3:5] = columns["g"].view(2, HEADS, -1) * columns["s"][:, :, None]
    torch.testing.assert_close(back, spread)
    assert bool(few._by_head) == (most > VERTICES * HEADS)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_extremes_and_shares_among_ties(edges: Edges, kind: str) -> None:
    src, dst = ends(edges)
    x = drawn(VERTICES, WIDTH).round().requires_grad_()  # many ties
    index = dst[:, None].expand(-1, WIDTH)
    start = torch.full((VERTICES, WIDTH), -torch.inf if kind == "max" else torch.inf)
    expected = start.scatter_reduce(0, index, x[src], f"a{kind}", include_self=False)
    expected = expected.masked_fill(torch.bincount(dst, minlength=VERTICES)[:, None] == 0, 0.0)
    gradient = drawn(VERTICES, WIDTH, 1)
    (pulled,) = torch.autograd.grad(expected, x, gradient)
    columns = {"x": x.detach(), "g": gradient}
    whole = Column("out", (WIDTH,))
    columns["best"] = running(edges).run(ExtremeStep(whole, "graph", "x", kind), columns)
    assert torch.equal(columns["best"], expected.detach())
    step = ExtremeGradientStep(whole, "graph", "x", kind, "best", "g")
    torch.testing.assert_close(running(edges).run(step, columns), pulled, rtol=1e-5, atol=1e-6)


def test_the_same_bits_on_any_number_of_threads_in_memory_that_comes_back(edges: Edges) -> None:
    """Shares of what has many ties, in thirds and sevenths: another order of sums would round differently."""
    columns = {"x": drawn(VERTICES, WIDTH).clamp(-0.1, 0.1), "g": drawn(VERTICES, WIDTH, 1)}
    columns["best"] = running(edges).run(ExtremeStep(Column("out", (WIDTH,)), "graph", "x", "max"), columns)
    step = ExtremeGradientStep(OF_VERTICES, "graph", "x", "max", "best", "g")
    expected = running(edges).run(step, columns)
    assert expected.shape == (VERTICES, HEADS, CHANNELS)
    for threads in (1, 2):
        with closing(Crew(threads)) as crew:
            run, places = running(edges, crew=crew), set()
            for _ in range(3):
                found = run.run(step, columns)
                assert torch.equal(found, expected)
                run.columns.release(found)
                places.add(found.data_ptr())
        assert len(places) <= 2, "what is released is lent again"


def test_the_same_bits_at_every_run_and_for_self_loops(edges: Edges) -> None:
    loops = EdgeSets(edges)["self_loops"]
    columns = {"x": drawn(VERTICES, WIDTH), "s": drawn(len(loops.src), HEADS)}
    step = ScaledPropagateStep(OF_VERTICES, "self_loops", "x", "s", HEADS, reverse=True)
    assert torch.equal(running(loops).run(step, columns), running(loops).run(step, columns))
