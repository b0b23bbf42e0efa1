"""Orders of partitions: every bucket or partition once, never more in memory than there is room for, few swaps."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import inf

import pytest

from planner.orders.beta import beta, swaps_of_beta
from planner.orders.cached_nodes import cached_nodes
from planner.orders.comet import comet
from planner.orders.disk import Disk
from planner.orders.division import GROUP, NEARLY, Division, OrderName, Sizes, divide, set_graph_bytes
from planner.orders.each_once import each_once
from planner.orders.hilbert import hilbert
from planner.orders.order import EdgeOrder, least_swaps
from planner.orders.vertex_division import VertexDivision, VertexOrderName, VertexSizes, divide_vertices

SIZES = [(p, c) for p in (2, 3, 4, 6, 7, 12, 16) for c in range(2, p + 1)]


def check(order: EdgeOrder, partitions: int, capacity: int) -> None:
    assert all(len(set(held)) == len(held) <= capacity for held in order.sets)
    assert all(a in held and b in held for held, found in zip(order.sets, order.buckets, strict=True) for a, b in found)
    counts = Counter(bucket for found in order.buckets for bucket in found)
    assert counts == Counter((a, b) for a in range(partitions) for b in range(partitions))


@pytest.mark.parametrize(
    ("sizes", "swaps", "least"),
    [((4, 2), 5, 5), ((6, 3), 7, 6), ((16, 4), 42, 38), ((32, 8), 78, 67), ((128, 32), 294, 247)],
)
def test_swaps_of_beta_are_those_of_the_paper(sizes: tuple[int, int], swaps: int, least: int) -> None:
    assert (beta(*sizes).reads, swaps_of_beta(*sizes), least_swaps(*sizes)) == (swaps, swaps, least)
    assert beta(*sizes, seed=5).reads == swaps


def test_beta_follows_the_papers_figure() -> None:
    sets = ["".join(map(str, held)) for held in beta(6, 3).sets]
    assert sets == ["012", "013", "014", "015", "125", "235", "234", "345"]


@pytest.mark.parametrize("sizes", SIZES)
def test_beta_trains_every_bucket_once_and_swaps_one_at_a_time(sizes: tuple[int, int]) -> None:
    for order in (beta(*sizes), beta(*sizes, seed=1, epoch=2)):
        check(order, *sizes)
        assert all(len(set(now) - set(before)) == 1 for before, now in pairwise(order.sets))
        assert least_swaps(*sizes) <= order.reads == swaps_of_beta(*sizes)
        assert {len(held) for held in order.sets} == {sizes[1]}


@pytest.mark.parametrize("sizes", [(4, 4, 2), (8, 4, 4), (16, 4, 8), (16, 8, 4), (12, 6, 12), (16, 4, 16), (3, 3, 1)])
def test_comet_trains_every_bucket_once_in_groups_of_each_epoch(sizes: tuple[int, int, int]) -> None:
    partitions, capacity, groups = sizes
    size = partitions // groups
    orders = [comet(*sizes, seed=3, epoch=epoch) for epoch in (1, 2)]
    for order in orders:
        check(order, partitions, capacity)
        of_groups = swaps_of_beta(groups, capacity // size)
        assert order.reads == size * of_groups
        assert len(order.sets) == of_groups + 1
    assert orders[0] == comet(*sizes, seed=3, epoch=1)
    if groups > 2:  # else there is one set
        assert orders[0] != orders[1]


def test_with_two_groups_in_memory_comet_is_balanced() -> None:
    found: Counter[int] = Counter()
    for epoch in range(300):
        order = comet(16, 4, 8, epoch=epoch)
        assert len(order.sets) == 28
        found.update({number: len(of_set) for number, of_set in enumerate(order.buckets)})
    means = [count / 300 for count in found.values()]
    assert all(9.14 - 0.6 < mean < 9.14 + 0.6 for mean in means), means  # 2 x 4 x 8 / 7 buckets for each set


@pytest.mark.parametrize(("sizes", "plain", "symmetric"), [((4, 2), 9, 5), ((8, 2), 51, 28), ((16, 4), 102, 56)])
def test_the_hilbert_curve_swaps_more(sizes: tuple[int, int], plain: int, symmetric: int) -> None:
    for order, swaps in ((hilbert(*sizes), plain), (hilbert(*sizes, symmetric=True), symmetric)):
        check(order, *sizes)
        assert order.reads == swaps >= swaps_of_beta(*sizes)


def test_cached_nodes_swap_nothing_and_draw_other_partitions_in_each_epoch() -> None:
    orders = [cached_nodes(16, 6, 2, seed=1, epoch=epoch) for epoch in range(20)]
    assert all(order.reads == 0 and order.partitions == ((0, 1),) for order in orders)
    assert all({0, 1} <= set(order.sets[0]) and len(order.sets[0]) == 6 for order in orders)
    assert {one for order in orders for one in order.sets[0]} == set(range(16))


@pytest.mark.parametrize(("sizes", "sets"), [((8, 2), 7), ((16, 4), 13), ((4, 4), 1)])
def test_each_once_reads_each_partition_once(sizes: tuple[int, int], sets: int) -> None:
    for epoch in range(5):
        order = each_once(*sizes, seed=2, epoch=epoch)
        assert len(order.sets) == sets
        assert order.reads + sizes[1] == sizes[0]
        assert sorted(one for found in order.partitions for one in found) == list(range(sizes[0]))
        assert all(set(found) <= set(held) for held, found in zip(order.sets, order.partitions, strict=True))


@pytest.mark.parametrize("name", ["cached_nodes", "each_once"])
def test_a_division_of_vertices_fills_the_room_that_there_is(name: VertexOrderName) -> None:
    sizes = VertexSizes(vertices=10_000, edges=100_000, examples=1_000, row_bytes=400, edge_bytes=1_200_000)
    least = divide_vertices(name, sizes, 0, 4096)
    everything = VertexDivision(name, 1, 1, 1).bytes(sizes)
    before = 0.0
    for room in range(least.bytes(sizes), everything + 1, everything // 10):
        found = divide_vertices(name, sizes, room, 4096)
        assert found.bytes(sizes) <= room
        assert found.capacity / found.partitions >= before
        before = found.capacity / found.partitions
        order = found.of_epoch(0, 1)
        assert {one for held in order.sets for one in held} <= set(range(found.partitions))
        if name == "cached_nodes":
            assert found.training == sizes.least_training(found.partitions) <= found.capacity
    whole = divide_vertices(name, sizes, everything, 4096)
    assert whole.capacity == whole.partitions


FAST, SLOW = Disk(2e9, 2e-5, 4096), Disk(1.5e8, 8e-3, 4096)
"""A solid state disk, and one that turns."""


@pytest.mark.parametrize("links", [60_000_000, 60_000], ids=["many links", "few links"])
@pytest.mark.parametrize("disk", [FAST, SLOW], ids=["fast", "slow"])
def test_with_more_room_an_epoch_of_comet_takes_less(links: int, disk: Disk) -> None:
    sizes = Sizes(vertices=1_000_000, rows=512_000_000, links=links, states=1)
    before = inf
    for room in range(60, 800, 40):
        found = divide("comet", sizes, room << 20, disk)
        assert found.bytes(sizes) <= room << 20
        assert len(found.of_epoch(0, 1).sets) == found.sets
        seconds = found.epoch_seconds(sizes, disk, 0.0)
        assert seconds <= NEARLY * before
        before = min(before, seconds)
    assert divide("comet", sizes, 2 << 30, disk).sets == 1
    tight = divide("comet", sizes, 0, disk)
    assert tight.bytes(sizes) == min(
        divide("comet", sizes, room << 20, disk).bytes(sizes) for room in range(0, 800, 40)
    )


def simulated_seconds(one: Division, sizes: Sizes, disk: Disk, compute: float) -> float:
    """Return the seconds of an epoch by the order itself: each read and write of it, with its own bytes."""
    order, moves = one.of_epoch(0, 1), list[float]()
    turned = [*order.sets[0], *(new for old, now in pairwise(order.sets) for new in set(now) - set(old))]
    for _ in turned:
        moves += [sizes.rows / one.partitions] * (2 * (sizes.rows > 0))
        moves += [sizes.features / one.partitions] * (sizes.features > 0)
    moves += [sizes.links / one.partitions**2 for found in order.buckets for _ in found]
    if sizes.messages:
        moves += [sizes.links / one.partitions**2 for held in order.sets for _ in held for _ in held]
    on_disk = sum(max(disk.block, of) / disk.bytes_per_second + disk.access_seconds for of in moves)
    return max(on_disk, compute + sum(making_of(held, one, sizes) for held in order.sets))


def making_of(held: tuple[int, ...], one: Division, sizes: Sizes) -> float:
    return 0.002 + 0.5e-6 * sizes.messages * (len(held) / one.partitions) ** 2


@pytest.mark.parametrize("order", ["beta", "comet"])
@pytest.mark.parametrize("disk", [FAST, SLOW, Disk(5e8, 1e-4, 1 << 20)], ids=["fast", "slow", "blocks of 1 MiB"])
@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(vertices=12, rows=90_000_000, links=40_000_000, states=2),
        Sizes(vertices=12, rows=2_000_000, links=50_000, states=1),
        Sizes(vertices=12, rows=9_000_000, links=4_000_000, states=1, features=60_000_000, messages=4_000_000),
    ],
    ids=["wide", "small", "with features and edges"],
)
def test_no_other_division_that_fits_takes_fewer_seconds(order: OrderName, disk: Disk, sizes: Sizes) -> None:
    every = [Division(order, 1, 1, 1)]
    for groups in range(2, sizes.vertices + 1):
        if order == "beta":
            every += [Division("beta", groups, held, groups) for held in range(2, groups + 1)]
        else:
            most = max(1, min(GROUP, sizes.vertices // groups, sizes.buffered // disk.block // groups))
            every += [Division("comet", groups * size, 2 * size, groups) for size in range(1, most + 1)]
    needed, chosen = sorted({one.bytes(sizes) for one in every}), set()
    for compute in (0.0, 0.05, 1.0, 100.0):
        seconds = {one: simulated_seconds(one, sizes, disk, compute) for one in every}
        for room in needed[:: max(1, len(needed) // 8)]:
            found = divide(order, sizes, room, disk, compute)
            assert found.bytes(sizes) <= room
            fitting = [one for one in every if one.bytes(sizes) <= room]
            best = min(seconds[one] for one in fitting)
            if order == "beta":
                assert seconds[found] == pytest.approx(best, rel=1e-4)
                ties = [one.partitions for one in fitting if seconds[one] <= best * (1 + 1e-9)]
                assert all(found.partitions <= partitions for partitions in ties)
            else:
                assert seconds[found] <= NEARLY * best * (1 + 1e-4)
            chosen.add(found)
    assert len(chosen) > 1


def test_what_the_disk_takes_decides_the_partitions() -> None:
    sizes = Sizes(vertices=1000, rows=400_000_000, links=30_000_000, states=1)
    room = 320 << 20
    fast, slow = (divide("beta", sizes, room, disk) for disk in (FAST, SLOW))
    assert slow.partitions < fast.partitions, "each of the buckets takes 8 ms to begin"
    hidden = divide("beta", sizes, room, SLOW, compute_seconds=1000.0)
    assert hidden.sets == min(
        Division("beta", partitions, held, partitions).sets
        for partitions in range(2, 33)
        for held in range(2, partitions + 1)
        if Division("beta", partitions, held, partitions).bytes(sizes) <= room
    ), "the disk hides behind the computation, so that only the making of sets counts"


def test_partitions_of_vertices_are_no_shorter_than_a_block() -> None:
    sizes = VertexSizes(vertices=1000, edges=4000, examples=100, row_bytes=400, edge_bytes=48_000)
    needed = set_graph_bytes(0.5, 1000, 4000) + 300_000
    short, long = (divide_vertices("each_once", sizes, needed, block) for block in (4096, 1 << 17))
    assert long.partitions <= 400_000 >> 17 < short.partitions


@pytest.mark.parametrize(
    "call",
    [
        lambda: beta(4, 1),
        lambda: beta(4, 5),
        lambda: comet(8, 4, 3),
        lambda: comet(8, 3, 4),
        lambda: hilbert(6, 2),
        lambda: cached_nodes(4, 2, 3),
    ],
)
def test_sizes_without_an_order_are_refused(call) -> None:
    with pytest.raises(ValueError, match=r"expected|each_once"):
        call()
