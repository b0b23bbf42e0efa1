"""The small parts, each alone: ledger, assignment, kept tensors, sums, keys."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from messenger.assignment import Assignment
from messenger.endpoint import Endpoint
from messenger.errors import AddressInUseError, ConflictError, MessengerError, StaleEpochError, UnsafeBindError
from messenger.fields import Kind
from messenger.frames import Message, decode, encode, raw_bytes, tensor_checksum
from messenger.kept import KeptTensors, Offer
from messenger.keys import CurveKeys, allowed_keys, check_bind, create_keys, keyed_endpoint
from messenger.ledger import Commit, Ledger
from messenger.room import Room, aligned
from messenger.settings import Limits, Settings
from messenger.sockets import ZmqHub
from messenger.spaces import Space
from messenger.sums import Sums
from messenger.tickets import WaitingChunk
from tests.messenger.network import job


def commit(partition: int, value: float = 1.0, epoch: int = 0, checksum: int = 7) -> Commit:
    return Commit(job(partition, epoch), {"gradient/w": np.array([value])}, 2, 10, checksum, 100, 50)


class TestLedger:
    def test_the_sum_does_not_depend_on_who_was_first(self):
        values = [1e16, 1.0, -1e16, 1.0]
        totals = set()
        for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
            ledger = Ledger()
            ledger.begin("run", 0)
            for partition in order:
                assert ledger.commit(commit(partition, values[partition]))
            totals.add(ledger.totals([job(partition) for partition in range(4)]).tensors["gradient/w"][0])
        assert totals == {((1e16 + 1.0) - 1e16) + 1.0}

    def test_a_second_commit_is_not_added(self):
        ledger = Ledger()
        ledger.begin("run", 0)
        assert ledger.commit(commit(0))
        assert not ledger.commit(commit(0))
        totals = ledger.totals([job(0)])
        assert (totals.tensors["gradient/w"][0], totals.chunks, totals.rows) == (1.0, 2, 10)
        assert (totals.bytes_sent, totals.bytes_received) == (100, 50)

    def test_a_second_commit_must_be_equal(self):
        ledger = Ledger()
        ledger.begin("run", 0)
        ledger.commit(commit(0))
        with pytest.raises(ConflictError, match="partition 0"):
            ledger.commit(commit(0, checksum=8))
        with pytest.raises(ConflictError):
            ledger.totals([job(0)])

    def test_only_the_open_epoch_takes_commits(self):
        ledger = Ledger()
        with pytest.raises(StaleEpochError):
            ledger.commit(commit(0))
        ledger.begin("run", 5)
        for epoch in (4, 6):
            with pytest.raises(StaleEpochError, match="open is epoch 5"):
                ledger.commit(commit(0, epoch=epoch))
        with pytest.raises(MessengerError, match="1 of 1 partitions have not committed"):
            ledger.totals([job(0, 5)])

    def test_runs_are_apart(self):
        ledger = Ledger()
        ledger.begin("run", 0)
        ledger.begin("other", 3)
        ledger.commit(commit(0))
        ledger.forget("other")
        assert ledger.totals([job(0)]).chunks == 2
        assert ledger.pass_number("other") == -1


class TestAssignment:
    @given(st.integers(1, 40), st.integers(1, 9))
    def test_balanced_and_sticky(self, partitions: int, workers: int):
        assignment, live = Assignment(), [f"w{index}" for index in range(workers)]
        first = [assignment.choose("run", partition, live) for partition in range(partitions)]
        loads = [first.count(name) for name in live]
        assert max(loads) - min(loads) <= 1
        assert [assignment.choose("run", partition, live) for partition in range(partitions)] == first

    def test_only_what_must_move_moves(self):
        assignment, live = Assignment(), ["a", "b", "c"]
        before = {partition: assignment.choose("run", partition, live) for partition in range(9)}
        after = {partition: assignment.choose("run", partition, ["a", "c"]) for partition in range(9)}
        moved = {partition for partition in before if before[partition] != after[partition]}
        assert {partition for partition in before if before[partition] == "b"} <= moved
        assert len(moved) <= 4
        back = [assignment.choose("run", partition, live) for partition in range(9)]
        assert {back.count(name) for name in live} <= {2, 3, 4}

    def test_nobody(self):
        assert Assignment().choose("run", 0, []) is None


class TestKeptTensors:
    def test_exactly_what_was_offered_or_nothing(self):
        kept, slot = KeptTensors(1000), ("run", 0, 0, "x", (2,))
        offer = Offer("x", "float32", (2,), 17, False)
        kept.put(slot, offer, np.zeros(2, np.float32), 0)
        assert kept.get(slot, offer) is not None
        assert kept.get(slot, Offer("x", "float32", (2,), 18, False)) is None
        assert kept.get(("run", 0, 1, "x", (2,)), offer) is None

    def test_the_budget_holds_and_the_oldest_goes(self):
        kept, offer = KeptTensors(100), Offer("x", "float32", (10,), 1, False)
        slots = {chunk: ("run", 0, chunk, "x", (10,)) for chunk in (0, 1, 2, 9)}
        for chunk in range(3):
            kept.put(slots[chunk], offer, np.zeros(10, np.float32), 0)
            kept.get(slots[0], offer)
            assert kept.bytes <= 100
        assert [kept.get(slots[chunk], offer) is not None for chunk in range(3)] == [True, False, True]
        kept.put(slots[9], offer, np.zeros(26, np.float32), 0)
        assert kept.get(slots[9], offer) is None

    def test_forgetting(self):
        kept = KeptTensors(1000)
        static, epoch = Offer("a", "int8", (4,), 1, False), Offer("b", "int8", (4,), 1, True)
        for run in ("one", "two"):
            kept.put((run, 0, 0, "a", (4,)), static, np.zeros(4, np.int8), 0)
            kept.put((run, 0, 0, "b", (4,)), epoch, np.zeros(4, np.int8), 0)
        kept.begin_pass("one", 0)
        assert kept.bytes == 16, "what came before the parameters stays"
        kept.begin_pass("one", 1)
        assert kept.bytes == 12
        kept.forget("two")
        assert kept.bytes == 4
        assert kept.get(("one", 0, 0, "a", (4,)), static) is not None


class TestSums:
    def test_float64_in_order(self):
        sums = Sums()
        for value in (1e8, 1.0, -1e8):
            sums.add({"a": np.array([value], np.float32)})
        assert sums.tensors["a"].tolist() == [1.0]

    def test_shapes_must_agree(self):
        sums = Sums()
        sums.add({"a": np.zeros(2)})
        with pytest.raises(MessengerError, match=r"'a' of shape \(1,\) to a sum of shape \(2,\)"):
            sums.add({"a": np.zeros(1)})

    def test_the_checksum_tells_names_shapes_and_values(self):
        variants = [{}, {"a": np.zeros(2)}, {"b": np.zeros(2)}, {"a": np.zeros((1, 2))}, {"a": np.ones(2)}]
        checksums = set()
        for tensors in variants:
            sums = Sums()
            sums.add(tensors)
            checksums.add(sums.checksum())
        assert len(checksums) == len(variants)


class TestKeys:
    def test_pairs_come_back_and_the_secret_is_the_owners(self, tmp_path: Path):
        create_keys(tmp_path / "keys")
        for name in ("router", "client"):
            assert os.stat(tmp_path / "keys" / f"{name}.secret").st_mode & 0o777 == 0o600
        client = CurveKeys.load(tmp_path / "keys", "client")
        assert allowed_keys(tmp_path / "keys") == {client.public}
        endpoint = keyed_endpoint("tcp://host:1", tmp_path / "keys")
        assert endpoint.public_key == client.public
        assert endpoint.server_key == CurveKeys.load(tmp_path / "keys", "router").public

    def test_secrets_are_not_printed(self):
        keys = CurveKeys.generate()
        assert keys.secret not in repr(keys) + repr(Endpoint("tcp://host:1", "s", keys.public, keys.secret))

    def test_a_pair_is_not_overwritten(self, tmp_path: Path):
        create_keys(tmp_path)
        with pytest.raises(MessengerError, match="exists already"):
            create_keys(tmp_path)

    @pytest.mark.parametrize("content", ["", "short", "|" * 40, "\u00e9" * 40])
    def test_what_is_no_key_is_refused(self, tmp_path: Path, content: str):
        create_keys(tmp_path)
        (tmp_path / "client.public").write_text(content)
        with pytest.raises(MessengerError, match=r"cannot read the key .*client\.public"):
            CurveKeys.load(tmp_path, "client")

    def test_keys_of_two_pairs_are_refused(self, tmp_path: Path):
        create_keys(tmp_path)
        (tmp_path / "client.public").write_text(CurveKeys.generate().public)
        with pytest.raises(MessengerError, match="do not belong together"):
            CurveKeys.load(tmp_path, "client")

    @pytest.mark.parametrize(
        "address", ["tcp://0.0.0.0:1", "tcp://*:1", "tcp://192.168.0.1:*", "tcp://[::]:1", "tcp://eth0:1"]
    )
    def test_beyond_loopback_only_with_keys(self, address: str):
        with pytest.raises(UnsafeBindError, match=r"without keys.*--keys DIR"):
            check_bind(address, None)
        check_bind(address, CurveKeys.generate())

    @pytest.mark.parametrize(
        "address", ["tcp://127.0.0.1:*", "tcp://localhost:1", "tcp://127.9.9.9:1", "tcp://[::1]:1", "ipc:///tmp/x"]
    )
    def test_loopback_needs_none(self, address: str):
        check_bind(address, None)

    @pytest.mark.parametrize("address", ["127.0.0.1:1", "udp://127.0.0.1:1", ""])
    def test_no_address(self, address: str):
        with pytest.raises(MessengerError, match="expected tcp://host:port"):
            check_bind(address, None)


def test_a_port_in_use_is_named():
    hub = ZmqHub("tcp://127.0.0.1:*", Settings())
    try:
        with pytest.raises(AddressInUseError, match=f"{hub.address}.*in use"):
            ZmqHub(hub.address, Settings())
    finally:
        hub.close()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:notaport", "tcp://192.0.2.1:5555"])
def test_an_address_that_cannot_be_had(address: str):
    keys = CurveKeys.generate()
    with pytest.raises(MessengerError, match="cannot listen on"):
        ZmqHub(address, Settings(), keys)


class TestRoom:
    NAME = "lotan-1-2-0123456789abcdef"

    def lent(self, size: int) -> tuple[Space, np.ndarray]:
        """A space in a region that begins at 1024, and the bytes of the region from there on."""
        memory = aligned((size,), np.dtype(np.uint8))
        memory[:] = 0
        return Space(self.NAME, 1024, memory.data), memory

    def places(self, frames: list) -> dict[str, list]:
        """By tensor."""
        memory = TestRoom.Everywhere()
        message = decode(frames, Limits(), memory)
        assert message.kind is Kind.RESULT
        return memory.asked

    class Everywhere:
        """Regions of which all is zero."""

        def __init__(self) -> None:
            self.asked: dict[int, int] = {}

        def view(self, region: str, offset: int, size: int) -> memoryview:
            self.asked[offset] = size
            return memoryview(bytes(size))

    def test_what_is_written_there_stays_and_the_rest_goes_behind_it(self) -> None:
        space, memory = self.lent(1024)
        room = Room(space)
        first, second = room.array((3, 5)), room.array((2, 4))
        assert first.ctypes.data == memory.ctypes.data
        assert (second.ctypes.data - memory.ctypes.data) % 64 == 0
        other = np.zeros((4, 4), np.float32)
        tensors = {"b": second, "other": other, "a": first}  # in whatever order they are returned
        frames = encode(Message(Kind.RESULT, {"ticket": 1, "chunk": 0, "digest": 0}, tensors), Limits(), space)
        assert len(frames) == 1
        assert self.places(frames) == {1024 + 64: 32, 1024 + 128: 64, 1024: 60}

    def test_numbers_are_left_alone_where_they_lie(self) -> None:
        space, memory = self.lent(256)
        placed = Room(space).array((4, 4))
        placed[...] = 7
        encode(Message(Kind.RESULT, {"ticket": 1, "chunk": 0, "digest": 0}, {"y": placed}), Limits(), space)
        assert (memory[:64].view(np.float32) == 7).all()
        assert not memory[64:].any()

    def test_without_room_it_gives_aligned_memory_of_our_own(self) -> None:
        space, memory = self.lent(64)
        room = Room(space)
        assert np.shares_memory(room.array((16,)), memory)
        for more in (room.array((1,)), Room().array((3, 3))):
            assert not np.shares_memory(more, memory)
            assert more.ctypes.data % 64 == 0

    def test_a_message_that_does_not_fit_travels_inline(self) -> None:
        space, _ = self.lent(128)
        placed = Room(space).array((4, 4))
        tensors = {"y": placed, "z": np.zeros(40, np.float32)}
        frames = encode(Message(Kind.RESULT, {"ticket": 1, "chunk": 0, "digest": 0}, tensors), Limits(), space)
        assert len(frames) == 3


class TestOffers:
    def chunk(self, rows: int, checksum: int) -> Message:
        header = {"run": "r", "epoch": 0, "stage": "s", "mode": "forward", "partition": 0, "chunk": 0}
        header |= {"first_row": 0, "rows": rows, "digest": 5, "offers": [["x", "float32", [rows], checksum, False]]}
        return Message(Kind.CHUNK, header, {})

    def test_passes_over_more_and_over_fewer_vertices_take_turns(self) -> None:
        """Each with a last chunk of its own length: what either has sent stays."""
        kept = KeptTensors(1 << 20)
        arrays = {rows: np.arange(rows, dtype=np.float32) for rows in (8, 3)}
        sums = {rows: tensor_checksum(raw_bytes(array)) for rows, array in arrays.items()}
        asked = []
        for _ in range(3):
            for rows, array in arrays.items():
                chunk = WaitingChunk.of(self.chunk(rows, sums[rows]), kept, Limits())
                asked.append(chunk.needs(spares=False))
                if asked[-1]:
                    chunk.fill(Message(Kind.DATA, {}, {"x": array}), kept)
        assert asked == [["x"], ["x"], [], [], [], []]


class TestSpares:
    def waiting(self) -> WaitingChunk:
        header = {"run": "r", "epoch": 0, "stage": "s", "mode": "backward", "partition": 0, "chunk": 2}
        header |= {"first_row": 0, "rows": 1, "digest": 5, "offers": [], "spares": ["x", "z"]}
        return WaitingChunk.of(Message(Kind.CHUNK, header, {"g": np.zeros(1)}), KeptTensors(1 << 20), Limits())

    def test_they_are_asked_for_when_they_are_needed(self) -> None:
        chunk = self.waiting()
        assert chunk.needs(spares=False) == []
        assert chunk.complete
        assert chunk.needs(spares=True) == ["x", "z"]
        assert not chunk.complete
        for name in ("x", "z"):
            chunk.fill(Message(Kind.DATA, {}, {name: np.ones(1)}), KeptTensors(1 << 20))
        assert chunk.complete
        assert chunk.tensors.keys() == {"g", "x", "z"}
        assert chunk.needs(spares=True) == [], "what is here is not asked for again"
