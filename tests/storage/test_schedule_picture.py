"""The picture of a schedule, read back from its SVG."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from lotan.storage.schedule_picture import LEFT, TOP, WIDEST, WIDTH, picture, stays
from planner.orders.beta import beta
from planner.orders.order import Set, swaps

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(("partitions", "buffer"), [(4, 2), (6, 3), (32, 8), (128, 32), (64, 2)])
def test_its_bars_cover_the_partitions_of_each_set(partitions: int, buffer: int) -> None:
    sets = beta(partitions, buffer, seed=0, epoch=1).sets
    drawn = ElementTree.fromstring(picture(sets))
    bars = drawn.findall(f"{SVG}rect")
    assert len(bars) == len(sets[0]) + swaps(sets)
    across = min(WIDEST, WIDTH / len(sets))
    assert min(float(bar.get("width", "")) for bar in bars) > 0.2
    held: list[set[int]] = [set() for _ in sets]
    for bar in bars:
        title = bar.findtext(f"{SVG}title", "")
        partition = int(title.split()[1].rstrip(":"))
        first = round((float(bar.get("x", "")) - LEFT) / across)
        for number in range(first, first + round(float(bar.get("width", "")) / across + min(0.5, across / 4) / across)):
            held[number].add(partition)
    assert [tuple(sorted(one)) for one in held] == [tuple(sorted(one)) for one in sets]
    assert float(drawn.get("height", "")) > max(float(bar.get("y", "")) for bar in bars) >= TOP


def test_a_partition_that_is_read_again_has_a_bar_for_each_time() -> None:
    sets: list[Set] = [(0, 1), (1, 2), (0, 2)]
    assert stays(sets) == {0: [(0, 0), (2, 2)], 1: [(0, 1)], 2: [(1, 2)]}
    assert "partition 1: sets 1 to 2<" in picture(sets)
    assert "partition 0: set 3<" in picture(sets)
