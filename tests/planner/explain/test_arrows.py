"""What arrows carry is written beside them, and never on another's words."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from hypothesis import given, settings

from planner.explain.arrows import draw_arrows
from planner.explain.diagram import Arrow, Box, Diagram, diagrams
from planner.explain.layout import lay_out
from planner.explain.sizes import size
from planner.explain.text import as_data
from tests.planner.explain.plans import MAKERS, plan
from tests.planner.explain.test_layout import drawings, touch

LETTER, HEIGHT = 6.3, 10.5  # pixels of the page's font


def labels(diagram):
    """Words and area of every label, as drawn."""
    drawn = "".join(draw_arrows(diagram, lay_out(diagram), diagram.most_bytes))
    found = []
    for over, x, y, words in re.findall(r'<text( class="over")? x="([\d.-]+)" y="([\d.-]+)">(.*?)</text>', drawn):
        left = float(x) - LETTER * len(words) * bool(over)
        found.append((words, (left, left + LETTER * len(words), float(y) - HEIGHT, float(y))))
    return found


def overlapping(diagram):
    return [(one[0], other[0]) for one, other in combinations(labels(diagram), 2) if touch(one[1], other[1])]


@settings(max_examples=150, deadline=None)
@given(drawings())
def test_no_label_lies_on_another(diagram):
    assert overlapping(diagram) == []


@pytest.mark.parametrize("name", MAKERS)
def test_real_plans_have_all_their_labels(name):
    for diagram in diagrams(as_data(plan(name))):
        assert overlapping(diagram) == []
        assert sorted(words for words, _ in labels(diagram)) == sorted(
            size(arrow.bytes) for arrow in lay_out(diagram).drawn
        )


def test_of_many_that_end_side_by_side_those_that_carry_most_are_told():
    """Eight into one box, which has not room for all their labels: some stand further back, those of least stay away."""
    sources = [str(at) for at in range(8)]
    boxes = tuple(Box(key, "op", "", "dl", False, 4, ()) for key in [*sources, "8"])
    carried = [(1 + at * 5 % 8) * 111_100 for at in range(8)]  # in an order of its own
    arrows = tuple(Arrow(key, "8", ("c",), bytes) for key, bytes in zip(sources, carried, strict=True))
    found = labels(Diagram("logical", "logical", boxes, arrows))
    told = sorted((words for words, _ in found), reverse=True)
    assert told[:5] == [size(bytes) for bytes in sorted(carried, reverse=True)][:5]
    assert len({area[3] for _, area in found}) == 2  # at the end, and back from there
    assert len(told) < len(arrows)
