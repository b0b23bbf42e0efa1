"""Rows that a worker keeps by key: what it says it has, and chunks whose other rows alone are sent."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from messenger.dealer import Dealer
from messenger.errors import FrameError
from messenger.fields import Kind
from messenger.frames import Message
from messenger.jobs import OutgoingChunk
from messenger.kept import KeptTensors, Offer
from messenger.kept_rows import INDEX_BYTES, ROW_CHECKSUMS, KeptRows, layout_of, row_checksums
from messenger.settings import Limits
from messenger.tickets import WaitingChunk
from tests.messenger.network import QUICK, TRANSPORTS, Background, Network, job, started
from tests.messenger.numpy_handler import DEADLINE, WIDTH, truth, weight, who_holds

ASKING = dataclasses.replace(QUICK, offer_shared_rows=True)
WIDE = 200  # numbers of a row beside those that the handler multiplies
ROW = 4 * (WIDTH + WIDE)  # bytes


def rows_of(vertices: np.ndarray, content: int = 0) -> dict[str, np.ndarray]:
    """Tensors in which each vertex has rows of its own."""
    wide = np.stack([np.random.default_rng([content, vertex]).random(WIDTH + WIDE) for vertex in vertices.tolist()])
    return {"x": wide[:, :WIDTH].astype(np.float32), "wide": wide[:, WIDTH:].astype(np.float32)}


def batch(vertices: list[int], content: int = 0, index: int = 0) -> OutgoingChunk:
    """A chunk of these vertices."""
    keys = np.array(vertices, np.int64)
    tensors = {"keys": keys, **rows_of(keys, content)}
    return OutgoingChunk(index, 0, len(keys), 5, tensors, by_row=frozenset(["x", "wide"]), row_keys="keys")


class TestKeptRows:
    """The rows alone."""

    keys = st.lists(st.integers(-3, 30), max_size=12)

    @given(st.lists(st.tuples(keys, st.integers(0, 1)), max_size=12), st.integers(0, 20))
    def test_what_is_taken_is_what_was_put(self, batches: list[tuple[list[int], int]], capacity: int) -> None:
        """Keys in any order, some twice, under a budget that they exceed, and rows whose content changes."""
        rows = KeptRows(capacity * (8 + INDEX_BYTES))
        for given_keys, content in batches:
            keys = np.array(given_keys, np.int64)
            values = {"x": (keys * 10 + content)[:, None]}
            layout, sums = layout_of(values), row_checksums(values, layout_of(values))
            into = {"x": np.full_like(values["x"], -99)}
            lacking = rows.take("run", layout, keys, sums, into)
            held = np.setdiff1d(np.arange(len(keys)), lacking)
            np.testing.assert_array_equal(into["x"][held], values["x"][held])
            assert (into["x"][lacking] == -99).all()
            rows.put("run", layout, keys[lacking], sums[lacking], {"x": values["x"][lacking]})
            assert rows.bytes <= capacity * (8 + INDEX_BYTES)

    def test_rows_that_fit_are_all_there(self) -> None:
        rows, keys = KeptRows(1 << 20), np.random.default_rng(0).permutation(3000)
        for some in (keys[:1000], keys[500:2500], keys[2000:]):
            values = rows_of_numbers(some)
            layout = layout_of(values)
            sums = row_checksums(values, layout)
            lacking = rows.take("run", layout, some, sums, {"x": np.empty_like(values["x"])})
            rows.put("run", layout, some[lacking], sums[lacking], {"x": values["x"][lacking]})
        values = rows_of_numbers(keys)
        into = {"x": np.empty_like(values["x"])}
        sums = row_checksums(values, layout_of(values))
        assert not len(rows.take("run", layout_of(values), keys, sums, into))
        np.testing.assert_array_equal(into["x"], values["x"])

    def test_runs_share_rows_until_the_last_is_forgotten(self) -> None:
        rows, keys = KeptRows(1 << 20), np.arange(5)
        values = rows_of_numbers(keys)
        layout = layout_of(values)
        asked = layout, keys, row_checksums(values, layout), values
        rows.put("one", *asked)
        assert not len(rows.take("two", *asked))
        rows.forget("one")
        assert not len(rows.take("two", *asked))
        rows.forget("two")
        assert rows.bytes == 0
        assert len(rows.take("three", *asked)) == 5

    def test_another_layout_replaces_all(self) -> None:
        rows, keys = KeptRows(1 << 20), np.arange(5)
        for values in (rows_of_numbers(keys), {"y": rows_of_numbers(keys)["x"]}):
            layout = layout_of(values)
            asked = layout, keys, row_checksums(values, layout), values
            assert len(rows.take("run", *asked)) == 5
            rows.put("run", *asked)
            assert not len(rows.take("run", *asked))

    def test_tensors_leave_for_rows_within_one_budget(self) -> None:
        kept, offer, slot = (
            KeptTensors(100_000, 60_000),
            Offer("x", "float32", (10_000,), 1, False),
            ("r", 0, 0, "x", ()),
        )
        kept.put(slot, offer, np.zeros(10_000, np.float32), 0)
        values = {"x": np.zeros((2000, 16), np.float32)}
        layout = layout_of(values)
        kept.put_rows("r", layout, np.arange(500), row_checksums(values, layout)[:500], values)
        assert kept.get(slot, offer) is None or kept.bytes + kept.rows.bytes <= 100_000
        kept.put_rows("r", layout, np.arange(2000), row_checksums(values, layout), values)
        assert kept.get(slot, offer) is None or kept.bytes + kept.rows.bytes <= 100_000
        assert kept.rows.bytes <= 60_000

    def test_each_byte_of_a_row_counts(self) -> None:
        values = {"x": np.zeros((40, 3), np.float32), "label": np.zeros(40, np.int8)}
        values["x"].reshape(-1).view(np.uint8)[np.arange(12) * 13] = 1  # another byte in each of twelve rows
        values["label"][12:14] = 1, 2
        assert len(set(row_checksums(values, layout_of(values)).tolist())) == 12 + 2 + 1


def rows_of_numbers(keys: np.ndarray) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(3).random((3000, 4))[keys]}


@pytest.fixture(params=TRANSPORTS)
def asking(request: pytest.FixtureRequest) -> Iterator[Network]:
    """Rows are offered wherever they go through."""
    yield from started(request.param, ASKING, workers=1)


def pipe(network: Network, dealer: Dealer, epoch: int, sent: list[OutgoingChunk], **settings: Any) -> int:
    """Send chunks, compare what comes back, and return the bytes that were sent."""
    network.begin(epoch, **settings)
    returned = list(dealer.pipe(job(epoch, epoch), sent))
    for back, out in zip(returned, sent, strict=True):
        np.testing.assert_array_equal(back.tensors["y"], out.tensors["x"] @ weight(epoch))
    totals = network.link.wait([job(epoch, epoch)], DEADLINE)
    np.testing.assert_array_equal(totals.tensors["gradient/w"], truth([sent], network.settings.group_chunks))
    return totals.bytes_sent


def test_only_rows_that_the_worker_lacks_are_sent(asking: Network) -> None:
    """Chunks of other partitions, with the same vertices in another order and some new ones."""
    dealer = asking.dealer()
    first = pipe(asking, dealer, 0, [batch(list(range(50)))])
    same = pipe(asking, dealer, 1, [batch(list(range(49, -1, -1)))])
    more = pipe(asking, dealer, 2, [batch([3, 100, 7, 101])])
    assert first > 50 * ROW
    assert same < 50 * 16 + 1500
    assert 2 * ROW < more < 2 * ROW + 1500


def test_rows_of_other_content_are_never_used(asking: Network) -> None:
    dealer = asking.dealer()
    for epoch in range(3):
        pipe(asking, dealer, epoch, [batch(list(range(20)), content=epoch % 2)])


def test_rows_without_a_place_are_sent_again(asking: Network) -> None:
    asking.stop_worker("w0")
    asking.worker("w1", kept_row_bytes=10 * (ROW + INDEX_BYTES))
    dealer = asking.dealer()
    sent = [pipe(asking, dealer, epoch, [batch(list(range(20)))]) for epoch in range(3)]
    assert 10 * ROW < sent[1] < sent[0]


def test_a_worker_that_keeps_none_asks_for_all(asking: Network) -> None:
    asking.stop_worker("w0")
    asking.worker("w1", kept_row_bytes=0)
    dealer = asking.dealer()
    sent = [pipe(asking, dealer, epoch, [batch(list(range(20)))]) for epoch in range(2)]
    assert sent[1] > 20 * ROW


def test_chunks_that_wait_side_by_side_may_ask_for_the_same_rows(asking: Network) -> None:
    dealer = asking.dealer()
    sent = [batch(list(range(start, start + 30)), index=index) for index, start in enumerate((0, 10, 20, 5, 0, 60))]
    pipe(asking, dealer, 0, sent)
    assert pipe(asking, dealer, 1, sent) < len(sent) * 30 * 16 + 6000


def test_a_lost_worker_changes_no_bit(asking: Network, tmp_path: Path) -> None:
    """The one that takes its place has no rows, and asks for all of them."""
    dealer = asking.dealer()
    sent = [batch(list(range(start, start + 30)), index=index) for index, start in enumerate(range(0, 100, 10))]
    pipe(asking, dealer, 0, sent)
    running = Background(lambda: pipe(asking, dealer, 1, sent, hold=str(tmp_path), chunk=5))
    assert who_holds(tmp_path) == "w0"
    asking.worker("w1")
    asking.link.lost("w0", "the test says so")
    assert running.result() > 30 * ROW
    (tmp_path / "release").touch()


def test_memory_that_is_shared_is_quicker_than_asking() -> None:
    for network in started("shared", workers=1):
        dealer = network.dealer()
        sent = [pipe(network, dealer, epoch, [batch(list(range(20)))]) for epoch in range(2)]
        assert sent[1] > 20 * ROW


def test_a_worker_of_another_host_keeps_rows() -> None:
    """It cannot reach the memory into which they are put at first."""
    for network in started("shared", workers=0):
        network.worker("remote", shared_bytes=0)
        dealer, sent = network.dealer(max_replays=0), batch(list(range(20)))
        for epoch in range(3):
            network.begin(epoch)
            list(dealer.pipe(job(0, epoch), [sent]))
        totals = network.link.wait([job(0, 2)], DEADLINE)
        assert totals.bytes_shared == 0
        assert totals.bytes_sent < 20 * 16 + 1500


def test_a_dealer_that_offers_no_rows() -> None:
    for network in started("zmq", workers=1):
        dealer = network.dealer(kept_row_bytes=0)
        sent = [pipe(network, dealer, epoch, [batch(list(range(20)))]) for epoch in range(2)]
        assert sent[1] > 20 * ROW


def test_rows_that_do_not_fit_into_shared_memory_are_offered() -> None:
    for network in started("shared", dataclasses.replace(QUICK, shared_bytes=1 << 20), workers=1):
        dealer, large = network.dealer(), batch(list(range(2000)))
        pipe(network, dealer, 0, [large])
        assert pipe(network, dealer, 1, [large]) < 2000 * 16 + 1500


class TestBadPeers:
    """Offers and rows that contradict themselves."""

    def message(self, **changes: Any) -> Message:
        out = batch([1, 2, 3])
        values = {name: out.tensors[name] for name in ("x", "wide")}
        header = {"run": "r", "epoch": 0, "stage": "s", "mode": "turn", "partition": 0, "chunk": 0, "first_row": 0}
        header |= {"rows": 3, "digest": 5, "offers": [], "row_keys": "keys"}
        header |= {"row_offers": [[name, one.dtype.name, list(one.shape)] for name, one in values.items()]}
        tensors = {"keys": out.tensors["keys"], ROW_CHECKSUMS: row_checksums(values, layout_of(values))}
        return Message(Kind.CHUNK, header | changes.pop("header", {}), tensors | changes)

    @pytest.mark.parametrize(
        "changes",
        [
            {"header": {"row_keys": "nothing"}},
            {"header": {"rows": 4}},
            {"header": {"row_offers": [["x", "float32", [1 << 40, 1 << 20]]]}},
            {"header": {"row_offers": [["x", "object", [3, 4]]]}},
            {"header": {"row_offers": [["x", "float32", [4, 4]]]}},
            {"keys": np.zeros(3, np.float64)},
            {ROW_CHECKSUMS: np.zeros(2, np.int64)},
        ],
    )
    def test_a_bad_offer_is_refused(self, changes: dict[str, Any]) -> None:
        with pytest.raises(FrameError, match=r"chunk 0|tensor 'x'"):
            WaitingChunk.of(self.message(**changes), KeptTensors(1 << 20, 1 << 20), Limits())

    def test_rows_that_were_not_offered_are_refused(self) -> None:
        kept, good = KeptTensors(1 << 20, 1 << 20), rows_of(np.array([1, 2, 3]))
        for bad in (
            {"x": good["x"]},
            rows_of(np.array([1, 2, 4])),
            rows_of(np.array([1, 2])),
            {**good, "x": good["wide"]},
        ):
            chunk = WaitingChunk.of(self.message(), kept, Limits())
            assert chunk.needs(spares=False) == ["wide", "x"]
            with pytest.raises(FrameError, match="rows of chunk 0 are not those that were offered"):
                chunk.fill(Message(Kind.DATA, {}, bad), kept)
            assert not chunk.complete
        chunk.fill(Message(Kind.DATA, {}, good), kept)
        assert chunk.complete
        assert chunk.tensors.keys() == {"keys", "x", "wide"}
        assert WaitingChunk.of(self.message(), kept, Limits()).complete
