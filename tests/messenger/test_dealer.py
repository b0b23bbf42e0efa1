"""The Dealer against a worker that answers exactly when the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from messenger.dealer import Dealer, close_shared_dealers, shared_dealer
from messenger.endpoint import Endpoint
from messenger.errors import ConflictError, FrameError, RemoteError
from messenger.fields import Kind
from messenger.frames import Frame, Message, decode, encode
from messenger.jobs import OutgoingChunk
from messenger.settings import Limits, Settings
from messenger.shared_memory import MappedRegions
from messenger.spaces import Space
from messenger.transport import ROUTER, Received
from tests.messenger.network import job
from tests.messenger.numpy_handler import chunks

LIMITS = Limits()
WORKER = b"worker/w0/1"


class ScriptedLink:
    """Answers each message through `answer`; what it answers is received once `may_receive` says so, or after a wait."""

    identity = b"dealer/test/1"

    def __init__(self, answer: Callable[[Message], list[Message]] | None = None) -> None:
        self.sent: list[Message] = []
        self.regions = MappedRegions(True)
        self.may_receive: Callable[[], bool] = lambda: True
        self.answer = answer or obliging
        self.space: Callable[[Message], Space | None] = lambda message: None  # where a message's tensors are put
        self._inbox: list[Message] = []

    def connect(self, endpoint: Endpoint, identity: bytes, settings: Settings) -> ScriptedLink:
        return self

    def send(self, to: bytes, frames: Sequence[Frame]) -> None:
        self.sent.append(decode(frames, LIMITS, self.regions))
        self._inbox += self.answer(self.sent[-1])

    def receive(self, seconds: float) -> Received | None:
        if not self._inbox or not (seconds or self.may_receive()):
            return None
        message = self._inbox.pop(0)
        from_router = message.kind in (Kind.WELCOME, Kind.REJOIN)
        return ROUTER if from_router else WORKER, encode(message, LIMITS, self.space(message))

    def refusal(self) -> str | None:
        return None

    def wake(self) -> None: ...

    def close(self, linger_seconds: float) -> None: ...

    def of(self, kind: Kind) -> list[Message]:
        return [message for message in self.sent if message.kind is kind]


def obliging(message: Message, scale: float = 1) -> list[Message]:
    """What Router, worker and coordinator say when all is well; the sums of a group are its number of chunks."""
    header = message.header
    ticket = {"ticket": header.get("ticket", 0)}
    match message.kind:
        case Kind.HELLO:
            return [Message(Kind.WELCOME, {"credits": 1, "heartbeat": 0.01, "missed": 5})]
        case Kind.CHUNK:
            rows = {"y": np.full(header["rows"], scale * header["chunk"], np.float32)}
            return [Message(Kind.RESULT, ticket | {"chunk": header["chunk"], "digest": header["digest"]}, rows)]
        case Kind.END:
            sums = {"statistics": np.array([header["count"]], np.float64)}
            return [Message(Kind.PARTIAL, ticket | {"group": header["group"], "count": header["count"]}, sums)]
        case Kind.COMMIT:
            return [Message(Kind.COMMITTED, ticket | {"first": True})]
    return []


def dealer(link: ScriptedLink) -> Dealer:
    return Dealer(Endpoint("scripted"), Settings(group_chunks=4, result_seconds=2, max_replays=3), connect=link.connect)


def test_the_end_of_a_group_is_sent_though_the_window_is_full_when_the_source_ends():
    link = ScriptedLink()
    ended: list[bool] = []

    def source() -> Iterator[OutgoingChunk]:
        yield from chunks(0, 5)
        ended.append(True)

    link.may_receive = lambda: bool(ended)
    assert len(list(dealer(link).pipe(job(0), source()))) == 5
    assert [message.header["count"] for message in link.of(Kind.END)] == [4, 1]


def test_loss_replays_the_open_groups_under_a_new_ticket_and_nothing_twice():
    """The worker is lost after each message of a partition in turn: always the same rows, sums and checksum."""
    outcomes = []
    for lost_at in (None, *range(1, 13)):
        link = ScriptedLink()
        answered = [0]

        def answer(message: Message, lost_at: int | None = lost_at, answered: list[int] = answered) -> list[Message]:
            answered[0] += message.kind in (Kind.CHUNK, Kind.END)
            if answered[0] == lost_at and message.kind in (Kind.CHUNK, Kind.END):
                return [Message(Kind.LOST, {"ticket": message.header["ticket"], "text": "killed", "name": "w0"})]
            return obliging(message)

        link.answer = answer
        rows = list(dealer(link).pipe(job(0), chunks(0, 10)))
        [commit] = link.of(Kind.COMMIT)
        outcomes.append(
            (
                [row.index for row in rows],
                commit.header["checksum"],
                commit.header["count"],
                commit.tensors["statistics"][0],
            )
        )
        if lost_at is not None:
            assert {message.header["ticket"] for message in link.of(Kind.CHUNK)} == {1, 2}
    assert outcomes == [(list(range(10)), outcomes[0][1], 10, 10.0)] * len(outcomes)


def test_what_comes_back_under_an_old_ticket_is_ignored():
    link = ScriptedLink()

    def answer(message: Message) -> list[Message]:
        if message.kind is Kind.CHUNK and message.header["ticket"] == 1:
            late = obliging(message, scale=-7)
            return [
                Message(Kind.LOST, {"ticket": 1, "text": "killed"}),
                *late,
                Message(Kind.LOST, {"ticket": 1, "text": "again"}),
            ]
        return obliging(message)

    link.answer = answer
    rows = list(dealer(link).pipe(job(0), chunks(0, 6)))
    assert [row.tensors["y"][0] for row in rows] == list(range(6))
    assert max(message.header["ticket"] for message in link.of(Kind.CHUNK)) == 2


def test_a_replay_that_comes_to_something_else_is_a_conflict():
    link = ScriptedLink()

    def answer(message: Message) -> list[Message]:
        if message.kind is Kind.CHUNK and message.header["chunk"] == 2 and message.header["ticket"] == 1:
            return [Message(Kind.LOST, {"ticket": 1, "text": "killed"})]
        return obliging(message, scale=message.header.get("ticket", 0))

    link.answer = answer
    with pytest.raises(ConflictError, match="chunk 1 had another result when it was sent again"):
        list(dealer(link).pipe(job(0), chunks(0, 6)))


def test_a_router_that_forgot_the_dealer_is_told_again():
    link = ScriptedLink()

    def answer(message: Message) -> list[Message]:
        forgotten = message.kind is Kind.CHUNK and message.header["chunk"] == 2 and message.header["ticket"] == 1
        return [Message(Kind.REJOIN)] if forgotten else obliging(message)

    link.answer = answer
    assert len(list(dealer(link).pipe(job(0), chunks(0, 6)))) == 6
    assert len(link.of(Kind.HELLO)) == 2


def test_replays_end():
    link = ScriptedLink()

    def answer(message: Message) -> list[Message]:
        if message.kind is Kind.CHUNK:
            return [Message(Kind.LOST, {"ticket": message.header["ticket"], "text": "worker 'w0' is gone"})]
        return obliging(message)

    link.answer = answer
    with pytest.raises(
        RemoteError, match=r"gave up .* after 4 lost workers \(max_replays\); the last: worker 'w0' is gone"
    ):
        list(dealer(link).pipe(job(0), chunks(0, 6)))


@pytest.mark.parametrize(
    ("change", "words"),
    [({"digest": 1}, "for other vertices"), ({"chunk": 5}, "out of order")],
)
def test_results_are_verified_not_assumed(change: dict[str, int], words: str):
    link = ScriptedLink()
    link.answer = lambda message: [
        Message(one.kind, one.header | (change if one.kind is Kind.RESULT else {}), one.tensors)
        for one in obliging(message)
    ]
    with pytest.raises(ConflictError, match=words):
        list(dealer(link).pipe(job(0), chunks(0, 6)))


def test_sums_of_too_few_chunks_are_refused():
    link = ScriptedLink()
    link.answer = lambda message: [
        Message(one.kind, one.header | ({"count": 3} if one.kind is Kind.PARTIAL else {}), one.tensors)
        for one in obliging(message)
    ]
    with pytest.raises(ConflictError, match="of 3 chunks, not of 4"):
        list(dealer(link).pipe(job(0), chunks(0, 6)))


def test_a_worker_that_asks_for_what_it_was_not_offered_is_an_error():
    link = ScriptedLink()

    def answer(message: Message) -> list[Message]:
        need = Message(Kind.NEED, {"ticket": 1, "chunk": 0, "names": ["password"]})
        return [need] if message.kind is Kind.CHUNK else obliging(message)

    link.answer = answer
    with pytest.raises(FrameError, match=r"worker 'w0' asks for \['password'\]"):
        list(dealer(link).pipe(job(0), chunks(0, 6)))


@pytest.mark.parametrize("before", [0, 1])
def test_chunks_out_of_order_are_refused(before: int):
    given = chunks(0, 2)
    with pytest.raises(Exception, match=f"chunk 0 came after chunk {before}"):
        list(dealer(ScriptedLink()).pipe(job(0), [given[before], given[0]]))


def reply_of(link: ScriptedLink, result: Message, ticket: int = 0, shift: int = 0) -> Space | None:
    """The space that the chunk of a result was given for it, under the result's ticket or another, or one beside it."""
    if result.kind is not Kind.RESULT:
        return None
    asked = result.header | ({"ticket": ticket} if ticket else {})
    [chunk] = [one for one in link.of(Kind.CHUNK) if all(one.header[key] == asked[key] for key in ("ticket", "chunk"))]
    region, offset, size = chunk.header["reply"]
    return link.regions.space((region, offset + shift, size))


def test_results_are_read_where_they_were_written():
    link = ScriptedLink()
    link.space = lambda message: reply_of(link, message)
    rows = list(dealer(link).pipe(job(0), chunks(0, 10)))
    assert [row.tensors["y"].tolist() for row in rows] == [[float(index)] * 8 for index in range(10)]
    [commit] = link.of(Kind.COMMIT)
    assert commit.header["bytes_shared"] == 10 * (8 * 4 * 4 + 8 * 4)


@pytest.mark.parametrize("shift", [128, 4096, 1 << 16])
def test_a_result_where_nothing_was_lent_is_refused(shift: int):
    link = ScriptedLink()
    link.space = lambda message: reply_of(link, message, shift=shift)
    with pytest.raises(FrameError, match="that were not lent for it"):
        list(dealer(link).pipe(job(0), chunks(0, 3)))


def test_what_a_lost_worker_still_writes_reaches_nobody():
    """It was only slow: it answers late, and scribbles over all that it was ever lent, while another does its work."""
    link, lent = ScriptedLink(), []

    def answer(message: Message) -> list[Message]:
        if message.kind is Kind.CHUNK and message.header["ticket"] == 1 and message.header["chunk"] == 2:
            lent.append(link.regions.view(message.header["reply"][0], 64, 4096).obj)
            late = obliging(message, scale=-7)
            return [Message(Kind.LOST, {"ticket": 1, "text": "silent"}), *late]
        return obliging(message)

    def space(message: Message) -> Space | None:
        if message.header.get("ticket") == 2:
            lent[0][64:4160] = bytes([0xFF]) * 4096
        return reply_of(link, message)

    link.answer, link.space = answer, space
    rows = [row.tensors["y"][0] for row in dealer(link).pipe(job(0), chunks(0, 6))]
    assert rows == list(range(6))
    assert len({message.header["reply"][0] for message in link.of(Kind.CHUNK)}) == 2


def test_a_worker_without_our_memory_is_no_loss():
    link, limit = ScriptedLink(), Settings(max_replays=0)

    def answer(message: Message) -> list[Message]:
        if message.kind is Kind.CHUNK and "reply" in message.header:
            return [Message(Kind.LOST, {"ticket": message.header["ticket"], "text": "no", "unmapped": True})]
        return obliging(message)

    link.answer = answer
    stubborn = Dealer(Endpoint("scripted"), limit, connect=link.connect)
    for expected in ({1, 2}, {3}):
        link.sent.clear()
        assert len(list(stubborn.pipe(job(0), chunks(0, 6)))) == 6
        assert {message.header["ticket"] for message in link.of(Kind.CHUNK)} == expected


def test_a_worker_that_misses_memory_it_was_not_given_is_a_loss():
    link = ScriptedLink()
    link.answer = lambda message: (
        [Message(Kind.LOST, {"ticket": message.header["ticket"], "text": "no memory", "unmapped": True})]
        if message.kind is Kind.CHUNK
        else obliging(message)
    )
    with pytest.raises(RemoteError, match=r"gave up .* the last: no memory"):
        list(dealer(link).pipe(job(0), chunks(0, 6)))


def test_shared_dealers_are_reused_when_idle():
    endpoint = Endpoint("tcp://127.0.0.1:1")
    one = shared_dealer(endpoint)
    assert shared_dealer(Endpoint("tcp://127.0.0.1:1")) is one
    one.busy = True
    two = shared_dealer(endpoint)
    assert two is not one
    assert shared_dealer(Endpoint("tcp://127.0.0.1:2")) not in (one, two)
    assert shared_dealer(endpoint) not in (one, two), "idle Dealers of another endpoint are closed"
    one.busy = False
    assert shared_dealer(endpoint) is one
    close_shared_dealers()
    assert shared_dealer(endpoint) is not one
    close_shared_dealers()
