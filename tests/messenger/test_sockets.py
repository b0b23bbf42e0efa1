"""The ZeroMQ transport: a peer that does not read holds up nobody, and one that is gone is noticed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from messenger.endpoint import Endpoint
from messenger.errors import MessengerError
from messenger.joining import new_identity
from messenger.settings import Settings
from messenger.sockets import ZmqHub, connect
from tests.messenger.numpy_handler import wait_until

SMALL = dataclasses.replace(Settings(), high_water_mark=2, backlog=50, linger_seconds=0)
MEGABYTE = bytes(1 << 20)


@pytest.fixture
def hub() -> Iterator[ZmqHub]:
    hub = ZmqHub("tcp://127.0.0.1:*", SMALL)
    yield hub
    hub.close()


def number(value: int) -> list[bytes]:
    return [value.to_bytes(4, "little"), MEGABYTE]


def test_a_peer_that_does_not_read_holds_up_nobody(hub: ZmqHub):
    slow, quick = (connect(Endpoint(hub.address), name, SMALL) for name in (b"slow", b"quick"))
    for link in (slow, quick):
        link.send(b"", [b"here"])
        wait_until(lambda: hub.receive(0.1))
    for value in range(40):
        assert hub.send(b"slow", b"", number(value)), "queued beyond the sockets' buffers"
    assert hub.send(b"quick", b"", [b"hello"])
    assert quick.receive(5) == (b"", [b"hello"])
    for value in range(40):
        while (received := slow.receive(0.01)) is None:
            hub.receive(0)  # passes on what waits
        assert bytes(received[1][0]) == value.to_bytes(4, "little"), "in order"
    for link in (slow, quick):
        link.close(0)


def test_a_peer_that_never_reads_is_given_up(hub: ZmqHub):
    link = connect(Endpoint(hub.address), b"stuck", SMALL)
    link.send(b"", [b"here"])
    wait_until(lambda: hub.receive(0.1))
    sent = 0
    while hub.send(b"stuck", b"", [MEGABYTE]):
        sent += 1
        assert sent < 500
    assert hub.send(b"stuck", b"", [b"probe"], droppable=True), "a probe is dropped, not queued"
    link.close(0)


def test_who_is_gone_cannot_be_sent_to(hub: ZmqHub):
    assert not hub.send(b"nobody", b"", [b"hello"])
    link = connect(Endpoint(hub.address), b"here", SMALL)
    link.send(b"", [b"here"])
    wait_until(lambda: hub.receive(0.1))
    assert hub.send(b"here", b"", [b"hello"])
    link.close(0)
    wait_until(lambda: not hub.send(b"here", b"", [b"hello"]))


def test_wake_ends_a_wait_and_is_harmless_after_close(hub: ZmqHub):
    link = connect(Endpoint(hub.address), b"sleeper", SMALL)
    for _ in range(100_000):
        link.wake()  # more than a pipe holds
    assert link.receive(30) is None
    link.close(0)
    link.wake()
    link.close(0)


@pytest.mark.parametrize("endpoint", [Endpoint("nowhere"), Endpoint("tcp://127.0.0.1:1", "short", "short", "short")])
def test_a_malformed_endpoint_is_an_error(endpoint: Endpoint):
    with pytest.raises(MessengerError, match="cannot connect to"):
        connect(endpoint, b"x", SMALL)


@pytest.mark.parametrize("name", ["", "w" * 1000, "日" * 100, "\udcff/x"])
def test_any_name_makes_an_identity_that_zeromq_takes(name: str):
    connect(Endpoint("tcp://127.0.0.1:1"), new_identity("worker", name), SMALL).close(0)
