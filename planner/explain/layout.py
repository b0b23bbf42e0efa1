"""Places the boxes of a diagram in rows, each below the boxes that it reads. Backward leads up in a lane of its own.

The method is that of Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures"
(1981). The longest path to a box gives its row. The mean place of its neighbours gives its order in the row. Boxes then
move as near to their neighbours as the order allows.

An arrow over several rows bends around the boxes between them. An arrow over more than FAR rows is not drawn. Instead,
the name of its value stands where the value is read, as on a circuit diagram.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from planner.explain.diagram import Arrow, Diagram

FAR = 3  # most rows that a drawn arrow spans
FAR_ACROSS = 2  # the same for an arrow from lane to lane
SWEEPS = 12  # passes over the rows, down and up; plans are narrow, and few passes are enough

BOX_WIDTH, BOX_HEIGHT = 216.0, 66.0  # pixels, like all sizes below
CHIP_WIDTH, CHIP_HEIGHT = 152.0, 20.0  # the name of an input with its arrow
COLUMN_GAP, ROW_GAP, LANE_GAP, MARGIN, HEADING = 28.0, 46.0, 84.0, 14.0, 26.0
THROUGH = 100  # factor for the bytes that go through a box, compared with other bytes
BEND_WIDTH = 14.0  # width of an arrow in a row that it passes through

Point = tuple[float, float]
Neighbours = dict[str, dict[str, int]]  # for each box, the boxes that arrows link to it, with a weight


@dataclass(frozen=True)
class Layout:
    """The places of a diagram's parts, in pixels from the upper left corner."""

    width: float
    height: float
    centres: Mapping[str, Point]  # centre of each box
    heights: Mapping[str, float]  # height of each box, which is larger if it has many chips
    drawn: Mapping[Arrow, tuple[Point, ...]]  # drawn arrows, each with its bends
    chips: Mapping[str, tuple[Arrow, ...]]  # for each box, the arrows that are shown as a name beside it
    lanes: tuple[Point, ...]  # upper left corner of each lane's first row: forward, then backward if there is one


def lay_out(diagram: Diagram) -> Layout:
    """Return a place for every box, and a way for every arrow."""
    rows = ranks(diagram)
    back = {box.key for box in diagram.boxes if box.backward}
    ways = ({key: row for key, row in rows.items() if (key in back) is backward} for backward in (False, True))
    near = [arrow for arrow in diagram.arrows if _span(arrow, rows) <= FAR]
    lanes = [_Lane(boxes, near, bool(backward)) for backward, boxes in enumerate(ways) if boxes]
    bends = {arrow: tuple(found) for lane in lanes for arrow, found in lane.bends.items()}
    bends |= {arrow: () for arrow in near if arrow not in bends and _is_open(arrow, rows, lanes)}
    chips: dict[str, list[Arrow]] = {key: [] for key in rows}
    for arrow in diagram.arrows:
        if arrow not in bends:
            chips[arrow.target].append(arrow)
    heights = {key: max(BOX_HEIGHT, CHIP_HEIGHT * len(found) + 6) for key, found in chips.items()}
    middles, height = _middles(rows, heights)
    across, width = _side_by_side(lanes, {key for key, found in chips.items() if found})
    places = {key: (x, middles[lane.rows[key]]) for lane in lanes for key, x in across.items() if key in lane.rows}
    return Layout(
        width=width,
        height=height,
        centres={key: places[key] for key in rows},
        heights=heights,
        drawn={arrow: tuple(places[bend] for bend in found) for arrow, found in bends.items()},
        chips={key: tuple(found) for key, found in chips.items()},
        lanes=tuple(_corner(lane, rows, places, heights) for lane in lanes),
    )


def _corner(lane: _Lane, rows: Mapping[str, int], places: Mapping[str, Point], heights: Mapping[str, float]) -> Point:
    """Return the upper left corner of the boxes in a lane's first row."""
    first = lane.row(min(rows[key] for key in lane.boxes))
    lefts, tops = zip(
        *((places[key][0] - BOX_WIDTH / 2, places[key][1] - heights[key] / 2) for key in first), strict=True
    )
    return min(lefts), min(tops)


def _side_by_side(lanes: Sequence[_Lane], chipped: Collection[str]) -> tuple[dict[str, float], float]:
    """Return the horizontal places of all boxes and bends, and the width of the picture."""
    across: dict[str, float] = {}
    right = MARGIN
    for lane in lanes:
        places, width = lane.places(chipped)
        across |= {key: right + x for key, x in places.items()}
        right += width + LANE_GAP
    return across, right - LANE_GAP + MARGIN


# --- rows -----------------------------------------------------------------------------------------------------------


def ranks(diagram: Diagram) -> dict[str, int]:
    """Return the row of every box, from 0. A forward box is below the boxes that it reads, a backward box above them."""
    inputs: dict[str, list[str]] = defaultdict(list)
    for arrow in diagram.arrows:
        if arrow.source is not None:
            inputs[arrow.target].append(arrow.source)
    back = {box.key for box in diagram.boxes if box.backward}
    forward = [box.key for box in diagram.boxes if not box.backward]
    rows: dict[str, int] = {}
    for key in forward:
        rows[key] = 1 + max((rows[source] for source in inputs[key]), default=-1)
    _lower_first(forward, inputs, rows)
    turn = rows[forward[-1]] if forward else 0
    for box in diagram.boxes:
        if box.backward:
            rows[box.key] = min((rows[source] for source in inputs[box.key] if source in back), default=turn) - 1
    least = min(0, *rows.values()) if rows else 0  # a longer way back begins below the turn
    return {key: row - least if key in back else row for key, row in rows.items()}


def _lower_first(keys: Sequence[str], inputs: Mapping[str, Sequence[str]], rows: dict[str, int]) -> None:
    """Move boxes that read no other box down to the row above their first reader."""
    first: dict[str, int] = {}
    for key in keys:
        for source in inputs.get(key, ()):
            first[source] = min(first.get(source, rows[key]), rows[key])
    rows |= {key: first[key] - 1 for key in keys if not inputs.get(key) and key in first}


def _span(arrow: Arrow, rows: Mapping[str, int]) -> float:
    return float("inf") if arrow.source is None else abs(rows[arrow.target] - rows[arrow.source])


def _is_open(arrow: Arrow, rows: Mapping[str, int], lanes: Sequence[_Lane]) -> bool:
    """Return True if no box is in the way of an arrow between lanes, beside its source or before its target."""
    source = arrow.source or ""
    if abs(rows[source] - rows[arrow.target]) > (1 if arrow.backward else FAR_ACROSS):  # gradients arrive from below
        return False
    forward, backward = lanes[0].row(rows[source]), lanes[1].row(rows[arrow.target])
    return forward[-1] == source and backward[0] == arrow.target


def _middles(rows: Mapping[str, int], heights: Mapping[str, float]) -> tuple[dict[int, float], float]:
    """Return the vertical middle of each row, and the height of the picture."""
    tallest = dict.fromkeys(range(max(rows.values(), default=-1) + 1), BOX_HEIGHT)
    for key, row in rows.items():
        tallest[row] = max(tallest[row], heights[key])
    middles, y = {}, MARGIN + HEADING
    for row, high in tallest.items():
        middles[row] = y + high / 2
        y += high + ROW_GAP
    return middles, y - ROW_GAP + MARGIN


# --- lanes ----------------------------------------------------------------------------------------------------------


class _Lane:
    """The boxes of one direction: their order in the rows, and their horizontal places."""

    def __init__(self, boxes: Mapping[str, int], arrows: Iterable[Arrow], backward: bool) -> None:
        self.boxes, self.backward = boxes, backward
        self.rows = dict(boxes)  # and rows of the bends
        self.bends: dict[Arrow, list[str]] = {}
        self.above: Neighbours = defaultdict(dict)
        self.below: Neighbours = defaultdict(dict)
        for arrow in arrows:
            if arrow.source is not None and arrow.source in boxes and arrow.target in boxes:
                self._link(arrow.source, arrow)
        self.table = self._ordered()

    def _link(self, source: str, arrow: Arrow) -> None:
        """Lead an arrow from row to row, with a bend in each row between."""
        start, end = self.rows[source], self.rows[arrow.target]
        step = 1 if end > start else -1
        bends = {f"{source}>{arrow.target}@{row}": row for row in range(start + step, end, step)}
        self.rows |= bends
        self.bends[arrow] = list(bends)
        for one, other in pairwise([source, *bends, arrow.target]):
            upper, lower = (one, other) if step > 0 else (other, one)
            self.below[upper][lower] = self.above[lower][upper] = arrow.bytes + 1

    def row(self, at: int) -> list[str]:
        """Return the boxes of a row in their order."""
        return [key for row in self.table for key in row if self.boxes.get(key) == at]

    def _ordered(self) -> list[list[str]]:
        """Return the rows, each in an order in which few arrows cross."""
        table = [[key for key, row in self.rows.items() if row == at] for at in sorted(set(self.rows.values()))]
        for sweep in range(SWEEPS):
            place = {key: float(at) for row in table for at, key in enumerate(row)}
            down = sweep % 2 == 0
            for row in table if down else reversed(table):
                means = {key: self._mean_place(key, place, down) for key in row}
                row.sort(key=means.__getitem__)
                place |= {key: float(at) for at, key in enumerate(row)}
        return table

    def places(self, chipped: Collection[str]) -> tuple[dict[str, float], float]:
        """Return the centres, measured from the lane's left edge, and the lane's width.

        If there is room, each box is straight below the boxes that it reads.
        """
        extent = {key: self._extent(key, chipped) for key in self.rows}
        weight = {key: self._weight(key) for key in self.rows}
        x = dict.fromkeys(self.rows, 0.0)
        for sweep in range(SWEEPS):
            down = (sweep % 2 == 1) is not self.backward  # the last pass goes in the direction of the arrows
            for row in self.table if down else reversed(self.table):
                wanted = [self._mean_place(key, x, down) for key in row]
                x |= zip(row, _apart(wanted, [extent[key] for key in row], [weight[key] for key in row]), strict=True)
        left = min(x[key] - extent[key][0] for key in self.rows)
        return {key: at - left for key, at in x.items()}, max(x[key] + extent[key][1] for key in self.rows) - left

    def _weight(self, key: str) -> int:
        """Return how firmly a box keeps its place. Boxes that pass on many bytes are firmest, so chains stay straight."""
        above, below = sum(self.above[key].values()), sum(self.below[key].values())
        return 1 + above + below + THROUGH * min(above, below)

    def _mean_place(self, key: str, places: Mapping[str, float], down: bool) -> float:
        """Return the mean place of a box's neighbours, weighted by bytes, so that wide arrows are straight.

        On the way down these are the neighbours above, and on the way up those below.
        """
        around = (self.above[key] or self.below[key]) if down else (self.below[key] or self.above[key])
        return fmean([places[other] for other in around], list(around.values())) if around else places[key]

    def _extent(self, key: str, chipped: Collection[str]) -> tuple[float, float]:
        """Return the pixels that a box or a bend takes to the left and to the right of its centre."""
        if key not in self.boxes:
            return BEND_WIDTH / 2, BEND_WIDTH / 2
        outer = BOX_WIDTH / 2 + (CHIP_WIDTH if key in chipped else 0)
        return (BOX_WIDTH / 2, outer) if self.backward else (outer, BOX_WIDTH / 2)


def _apart(wanted: Sequence[float], extents: Sequence[tuple[float, float]], weights: Sequence[int]) -> list[float]:
    """Return the places nearest to the wanted ones at which nothing overlaps, by isotonic regression."""
    offsets = [0.0]
    for (_, right), (left, _) in pairwise(extents):
        offsets.append(offsets[-1] + right + COLUMN_GAP + left)
    bases = isotonic([want - offset for want, offset in zip(wanted, offsets, strict=True)], weights)
    return [base + offset for base, offset in zip(bases, offsets, strict=True)]


def isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the nearest sequence that never falls, by weighted squares.

    >>> isotonic([1.0, 3.0, 2.0, 5.0], [1, 1, 3, 1])
    [1.0, 2.25, 2.25, 5.0]
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight and length; falling neighbours are pooled
    for value, weight in zip(values, weights, strict=True):
        mean, mass, count = value, weight, 1
        while blocks and blocks[-1][0] > mean:
            before, heavy, length = blocks.pop()
            mean, mass, count = (before * heavy + mean * mass) / (heavy + mass), heavy + mass, length + count
        blocks.append((mean, mass, count))
    return [mean for mean, _, count in blocks for _ in range(count)]
