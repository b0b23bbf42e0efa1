"""Messages dropped, doubled, reordered and corrupted on the way: the same bits, or a typed error in time."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from messenger.endpoint import Endpoint
from messenger.errors import DeadlineError, FrameError, MessengerError
from messenger.fields import Kind
from messenger.frames import Frame, Message, encode, peek
from messenger.settings import Limits, Settings
from messenger.transport import Connect, Link, Received
from tests.messenger.network import QUICK, Background, Network, job, started
from tests.messenger.numpy_handler import DEADLINE, chunks, rows_checksum, truth, wait_until, who_holds

pytestmark = pytest.mark.thorough

Sent = tuple[bytes, list[Frame]]
Fault = Callable[[Sent], list[Sent]]


class FaultyLink:
    """A Dealer's link which treats its `at`-th message of a kind as `fault` says: what is sent in its place."""

    def __init__(self, link: Link, kind: Kind, at: int, fault: Fault) -> None:
        self.identity = link.identity
        self._link, self._kind, self._at, self._fault = link, kind, at, fault
        self._count = 0

    def send(self, to: bytes, frames: Sequence[Frame]) -> None:
        messages = [(to, list(frames))]
        if peek(frames[0], Limits()).kind is self._kind:
            self._count += 1
            if self._count == self._at:
                messages = self._fault(messages[0])
        for message in messages:
            self._link.send(*message)

    def receive(self, seconds: float) -> Received | None:
        return self._link.receive(seconds)

    def refusal(self) -> str | None:
        return self._link.refusal()

    def wake(self) -> None:
        self._link.wake()

    def close(self, linger_seconds: float) -> None:
        self._link.close(linger_seconds)


class LateLink(FaultyLink):
    """A Dealer's link which receives nothing from `stop_hearing` until `hears` is set."""

    def __init__(self, link: Link) -> None:
        super().__init__(link, Kind.CHUNK, 0, lambda message: [message])
        self.hears, self._waits = threading.Event(), threading.Event()
        self.hears.set()

    def stop_hearing(self) -> None:
        self.hears.clear()
        assert self._waits.wait(DEADLINE)

    def receive(self, seconds: float) -> Received | None:
        if not self.hears.is_set():
            self._waits.set()
            assert self.hears.wait(DEADLINE)
        return super().receive(seconds)


def faulty(network: Network, kind: Kind, at: int, fault: Fault) -> Connect:
    def connect(endpoint: Endpoint, identity: bytes, settings: Settings) -> Link:
        return FaultyLink(network.connect(endpoint, identity, settings), kind, at, fault)

    return connect


@pytest.fixture(params=["in_process", "zmq"])
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    yield from started(request.param, dataclasses.replace(QUICK, result_seconds=3))


def pipe(network: Network, connect: Connect | None) -> tuple[str, bytes]:
    """A partition's rows and sums."""
    sent = chunks(0, 10, static=True)
    rows = rows_checksum(list(network.dealer(connect).pipe(job(0), sent)))
    return rows, network.totals(1).tensors["gradient/w"].tobytes()


def flipped(message: Sent, frame: int) -> list[Sent]:
    to, frames = message
    damaged = bytearray(frames[frame])
    damaged[-1] ^= 1
    return [(to, [*frames[:frame], bytes(damaged), *frames[frame + 1 :]])]


@pytest.mark.parametrize("kind", [Kind.CHUNK, Kind.END])
@pytest.mark.parametrize("fault", ["dropped", "doubled", "late"])
def test_a_message_out_of_step_changes_no_bit(network: Network, kind: Kind, fault: str):
    held: list[Sent] = []

    def treat(message: Sent) -> list[Sent]:
        return {"dropped": [], "doubled": [message, message], "late": held.append(message) or []}[fault]

    network.begin(0)
    assert pipe(network, faulty(network, kind, 2, treat)) == pipe(network, None)
    expected = truth([chunks(0, 10)], 4)
    np.testing.assert_array_equal(network.totals(1).tensors["gradient/w"], expected)


@pytest.mark.parametrize(
    ("kind", "frame"), [(Kind.CHUNK, 0), (Kind.END, 0), (Kind.DATA, 0), (Kind.DATA, 1), (Kind.COMMIT, 0)]
)
def test_a_corrupted_message_is_a_typed_error_and_the_task_can_be_repeated(network: Network, kind: Kind, frame: int):
    network.begin(0)
    with pytest.raises(FrameError, match="corrupted on the way"):
        pipe(
            network, faulty(network, kind, 2 if kind is not Kind.COMMIT else 1, lambda message: flipped(message, frame))
        )
    _, sums = pipe(network, None)
    assert sums == truth([chunks(0, 10)], 4).tobytes()


def test_corrupted_gradients_are_refused_by_the_coordinator(network: Network):
    network.begin(0)
    with pytest.raises(FrameError, match=r"the coordinator got .* corrupted"):
        pipe(network, faulty(network, Kind.COMMIT, 1, lambda message: flipped(message, 1)))
    with pytest.raises(DeadlineError):
        network.link.wait([job(0)], 0.01)


def test_a_lost_end_of_all_ends_at_the_deadline(network: Network):
    network.begin(0)
    with pytest.raises(DeadlineError, match="did not return the sums of a group"):
        pipe(network, faulty(network, Kind.END, 3, lambda message: []))


def test_a_worker_that_was_lost_gets_no_work_before_it_can_do_it(network: Network, tmp_path: Path):
    """The Dealer learns of the loss only after several more heartbeats of the worker, which is still busy."""
    links: list[LateLink] = []

    def connect(endpoint: Endpoint, identity: bytes, settings: Settings) -> Link:
        links.append(LateLink(network.connect(endpoint, identity, settings)))
        return links[-1]

    network.begin(0, hold=str(tmp_path), chunk=5)
    rows = Background(lambda: pipe(network, connect))
    busy = who_holds(tmp_path)
    links[0].stop_hearing()
    network.link.lost(busy, "the test says so")
    beats = network.router._beats
    wait_until(lambda: network.router._beats > beats + 5)
    links[0].hears.set()
    assert rows.result() == pipe(network, None)
    (tmp_path / "release").touch()
    assert network.link.wait_for_workers(2) == ["w0", "w1"]


def test_another_programs_bytes_do_not_disturb_the_router(network: Network):
    network.begin(0)
    link = network.connect(network.endpoint, b"stranger", network.settings)
    for frames in ([], [b""], [b"GET / HTTP/1.1"], [b"LTN\x01" + bytes(20)], [bytes(100), bytes(100)]):
        link.send(b"coordinator", frames)
    assert pipe(network, None)[1] == truth([chunks(0, 10)], 4).tobytes()
    link.close(0)


def test_a_stranger_cannot_speak_without_hello(network: Network):
    """A DealerLink that never said HELLO is told to, and its messages go nowhere."""
    link = network.connect(network.endpoint, b"stranger", network.settings)
    link.send(b"", encode(Message(Kind.STOP), Limits()))
    received = link.receive(5)
    assert received is not None
    assert peek(received[1][0], Limits()).kind is Kind.REJOIN
    link.close(0)
    assert network.link.wait_for_workers(2) == ["w0", "w1"]


def test_a_role_may_not_do_anothers_work(network: Network):
    network.begin(0)

    def stop_instead(message: Sent) -> list[Sent]:
        return [(b"", encode(Message(Kind.STOP), Limits()))]

    with pytest.raises(MessengerError, match="a dealer may not send 'stop'"):
        pipe(network, faulty(network, Kind.CHUNK, 2, stop_instead))
