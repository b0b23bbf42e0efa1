"""Where boxes stand: in rows that follow the arrows, and never on one another."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.explain.diagram import Arrow, Box, Diagram, diagrams
from planner.explain.layout import BOX_WIDTH, CHIP_WIDTH, FAR, HEADING, MARGIN, isotonic, lay_out, ranks
from planner.explain.text import as_data
from tests.planner.explain.plans import MAKERS, plan


def drawings():
    """Diagrams of up to a dozen boxes, the last few on the way back, each read by some that come after it."""

    @st.composite
    def draw(pick):
        count = pick(st.integers(1, 12))
        turn = pick(st.integers(0, count - 1))
        boxes = tuple(Box(str(at), f"op{at}", "", "dl", at > turn, 4, ()) for at in range(count))
        arrows = tuple(
            Arrow(str(source), str(target), (f"c{source}",), pick(st.integers(0, 999)), source >= turn)
            for source, target in combinations(range(count), 2)
            if pick(st.booleans())
        )
        columns = tuple(Arrow(None, str(at), ("features",), 9) for at in range(count) if pick(st.booleans()))
        return Diagram("epoch", "epoch", boxes, (*arrows, *columns))

    return draw()


def areas(diagram, layout):
    """Left, right, top and bottom of every box, chips included."""
    found = {}
    for box in diagram.boxes:
        (x, y), half = layout.centres[box.key], layout.heights[box.key] / 2
        chips = CHIP_WIDTH if layout.chips[box.key] else 0
        left, right = (0, chips) if box.backward else (chips, 0)
        found[box.key] = (x - BOX_WIDTH / 2 - left, x + BOX_WIDTH / 2 + right, y - half, y + half)
    return found


def touch(a, b):
    """Whether two areas share a point."""
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


def overlaps(diagram):
    """Pairs of boxes, chips included, that share a point, and boxes that leave the picture."""
    layout = lay_out(diagram)
    found = areas(diagram, layout)
    shared = [(one, other) for (one, a), (other, b) in combinations(found.items(), 2) if touch(a, b)]
    outside = [key for key, a in found.items() if a[0] < 0 or a[2] < 0 or a[1] > layout.width or a[3] > layout.height]
    return shared + outside


@settings(max_examples=150, deadline=None)
@given(drawings())
def test_boxes_stand_apart_and_in_the_picture(diagram):
    assert overlaps(diagram) == []


@pytest.mark.parametrize("name", MAKERS)
def test_real_plans_stand_apart(name):
    assert [overlaps(diagram) for diagram in diagrams(as_data(plan(name)))] == [[]] * len(diagrams(as_data(plan(name))))


@settings(max_examples=150, deadline=None)
@given(drawings())
def test_arrows_lead_down_and_gradients_up(diagram):
    rows, back = ranks(diagram), {box.key: box.backward for box in diagram.boxes}
    for arrow in diagram.arrows:
        if arrow.source is not None and back[arrow.source] == back[arrow.target]:
            down = rows[arrow.target] - rows[arrow.source]
            assert down < 0 if back[arrow.target] else down > 0


@settings(max_examples=150, deadline=None)
@given(drawings())
def test_every_value_is_drawn_or_named(diagram):
    layout = lay_out(diagram)
    named = [arrow for found in layout.chips.values() for arrow in found]
    assert sorted(map(repr, [*layout.drawn, *named])) == sorted(map(repr, diagram.arrows))
    assert all(arrow in named for arrow in diagram.arrows if arrow.source is None)


def test_the_way_back_of_a_gcn_mirrors_the_way_there():
    (diagram,) = [found for found in diagrams(as_data(plan("deep"))) if found.key == "epoch"]
    layout = lay_out(diagram)
    rows, steps = ranks(diagram), len(diagram.boxes)
    turn = steps // 2
    assert [rows[str(at)] for at in range(steps)] == [*range(turn + 1), *range(turn - 1, -1, -1)]
    assert len({layout.centres[str(at)][0] for at in range(turn + 1)}) == 1, "a chain runs straight"
    assert len({layout.centres[str(at)][0] for at in range(turn + 1, steps)}) == 1
    lefts = [x for x, _ in layout.lanes]
    assert lefts[0] < layout.centres["0"][0] < lefts[1] < layout.centres[str(steps - 1)][0]


def test_what_is_read_from_afar_is_named():
    boxes = tuple(Box(str(at), "op", "", "dl", False, 4, ()) for at in range(FAR + 2))
    chain = [Arrow(str(at), str(at + 1), ("c",), 1) for at in range(FAR + 1)]
    near, far = Arrow("0", str(FAR), ("c",), 1), Arrow("0", str(FAR + 1), ("c",), 1)
    layout = lay_out(Diagram("logical", "logical", boxes, (*chain, near, far)))
    assert len(layout.drawn[near]) == FAR - 1, "a bend for each row between"
    assert layout.chips[str(FAR + 1)] == (far,)


@settings(max_examples=150, deadline=None)
@given(drawings())
def test_a_heading_stands_over_the_first_box_of_its_lane_and_on_nothing(diagram):
    layout, rows = lay_out(diagram), ranks(diagram)
    for backward, (x, y) in enumerate(layout.lanes):
        lane = [box.key for box in diagram.boxes if box.backward is bool(backward)]
        first = [key for key in lane if rows[key] == min(rows[key] for key in lane)]
        assert x == min(layout.centres[key][0] for key in first) - BOX_WIDTH / 2
        assert y == min(layout.centres[key][1] - layout.heights[key] / 2 for key in first)
        assert y >= MARGIN + HEADING, "there is room above"
        heading = (x, x + BOX_WIDTH / 2, y - HEADING, y)
        assert not [key for key, area in areas(diagram, layout).items() if touch(heading, area)]


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 9)), min_size=1, max_size=8))
def test_isotonic_is_the_least_of_the_greatest_means(pairs):
    """The min-max formula: max over starts up to i of the min over ends from i of the weighted mean between."""
    values, weights = [float(value) for value, _ in pairs], [weight for _, weight in pairs]

    def mean(start, end):
        mass = sum(weights[start : end + 1])
        return sum(v * w for v, w in zip(values[start : end + 1], weights[start : end + 1], strict=True)) / mass

    n = len(values)
    expected = [max(min(mean(start, end) for end in range(i, n)) for start in range(i + 1)) for i in range(n)]
    assert isotonic(values, weights) == pytest.approx(expected)
