"""A worker's loop. It takes chunks in each Dealer's order, runs the handler on them, and sums gradients by group.

Each Dealer's ticket has a state of its own, so two attempts of one partition never mix. No data here is the only copy:
a ticket that is out of step is given back (LOST), and the Dealer sends its open groups again.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import time
import traceback
from typing import Any

from messenger.endpoint import Endpoint
from messenger.errors import FrameError, UnmappedError
from messenger.fields import Kind
from messenger.frames import Message, decode, peek
from messenger.jobs import Handler, is_summed
from messenger.joining import WORKER_ROLE
from messenger.kept import KeptTensors
from messenger.kept_rows import ROWS
from messenger.pump import Failed, Forgotten, Incoming, Pump
from messenger.room import Room
from messenger.settings import Settings
from messenger.shared_memory import MappedRegions
from messenger.sockets import connect as connect_socket
from messenger.supplies import Supplies
from messenger.tickets import Ticket, WaitingChunk, WaitingEnd
from messenger.transport import Connect

log = logging.getLogger(__name__)

TICK_SECONDS = 0.25  # the loop checks this often whether a supply is overdue
LOOK_SECONDS = 1.0  # the loop checks this often which Dealers have closed their shared memory
ERROR_CALLS, ERROR_TEXT = 6, 8000  # number of innermost calls, and of characters, of a traceback that is sent


class WorkerLoop:
    """Runs a handler on the chunks that come through the Router.

    Args:
        endpoint: the Router's address and this worker's keys.
        handler: runs the stages. Only the thread that calls `run` calls it.
        name: a name that is unique among the Router's workers. A second worker of that name replaces the first.
        settings: deadlines and limits (default: `Settings()`).
        connect: opens the link (default: a ZeroMQ socket).
    """

    def __init__(
        self,
        endpoint: Endpoint,
        handler: Handler,
        name: str,
        settings: Settings | None = None,
        connect: Connect = connect_socket,
    ) -> None:
        self._settings = settings or Settings()
        self._handler = handler
        self._pump = Pump(endpoint, WORKER_ROLE, name, self._settings, connect)
        self._kept = KeptTensors(self._settings.kept_bytes, self._settings.kept_row_bytes)
        self._regions = MappedRegions(self._settings.shared_bytes > 0)
        self._supplies = Supplies(handler, self._pump, self._settings)
        self._tickets: dict[bytes, Ticket] = {}  # the newest ticket of each Dealer
        self._stopped = False

    def run(self) -> None:
        """Work until the Router says stop or `stop` is called.

        Raises:
            MessengerError: the Router cannot be reached, refuses this worker, or fell silent.
        """
        gc.freeze()  # the objects that exist now, a million of them torch's, stay: collections need not look at them
        self._pump.start()
        next_look = 0.0
        try:
            while not self._stopped:
                event = self._pump.next(TICK_SECONDS)
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Forgotten):
                    self._tickets.clear()
                    self._supplies.ask_again()
                    self._pump.rejoin()
                elif isinstance(event, Incoming):
                    self._take(event)
                for failure in self._supplies.overdue():
                    self._fail_waiting(*failure)
                if time.monotonic() > next_look:
                    self._regions.prune()
                    next_look = time.monotonic() + LOOK_SECONDS
        finally:
            self._pump.close()
            self._regions.close()

    def stop(self) -> None:
        """Make `run` return after the present chunk. Other threads and signal handlers may call this."""
        self._stopped = True

    # -- messages ----------------------------------------------------------------------------------------------------

    def _take(self, event: Incoming) -> None:
        try:
            message = decode(event.frames, self._settings.limits, self._regions)
        except UnmappedError as error:
            self._unmapped(event, error)
            return
        except FrameError as error:
            self._unreadable(event, error)
            return
        match message.kind:
            case Kind.CHUNK | Kind.END:
                self._arrived(event.sender, message)
            case Kind.DATA:
                self._supplied(event.sender, message)
            case Kind.CLOSE | Kind.GONE:
                self._tickets.pop(event.sender, None)
            case Kind.ERROR:
                self._not_supplied(message)
            case Kind.FORGET:
                self._forget(message.header["run"])
            case Kind.STOP:
                self._stopped = True

    def _unreadable(self, event: Incoming, error: FrameError) -> None:
        """Report an unreadable message to its sender, whose ticket is out of step from now on."""
        log.warning("unreadable message from %s: %s", event.sender, error)
        header: dict[str, Any] = {"code": "frame", "text": f"worker {self._pump.name!r} got {error}"}
        with contextlib.suppress(FrameError, KeyError):
            header |= {"ticket": peek(event.frames[0], self._settings.limits).header["ticket"]}
        if event.sender:
            self._pump.send(event.sender, Message(Kind.ERROR, header))

    def _unmapped(self, event: Incoming, error: UnmappedError) -> None:
        """Give a ticket back to a Dealer with whom this worker shares no memory."""
        envelope = peek(event.frames[0], self._settings.limits)
        ticket = self._ticket(event.sender, envelope.kind, envelope.header.get("ticket", -1))
        if ticket is None or ticket.over:
            return
        ticket.over = True
        log.info("no memory is shared with %s: %s", event.sender, error)
        header = {"ticket": ticket.number, "text": f"worker {self._pump.name!r}: {error}", "unmapped": True}
        self._pump.send(event.sender, Message(Kind.LOST, header))

    def _arrived(self, dealer: bytes, message: Message) -> None:
        ticket = self._ticket(dealer, message.kind, message.header["ticket"])
        if ticket is None or ticket.over or message.header["seq"] < ticket.next_seq:
            return  # the attempt is over, or the message arrived twice
        if message.header["seq"] > ticket.next_seq:
            ticket.over = True
            text = f"worker {self._pump.name!r} has no message {ticket.next_seq} of the ticket"
            self._pump.send(dealer, Message(Kind.LOST, {"ticket": ticket.number, "text": text}))
            return
        ticket.next_seq += 1
        if message.kind is Kind.END:
            ticket.waiting.append(WaitingEnd(message.header["group"], message.header["count"]))
        else:
            self._queue(ticket, message)
        self._advance(ticket)

    def _ticket(self, dealer: bytes, kind: Kind, number: int) -> Ticket | None:
        ticket = self._tickets.get(dealer)
        if kind is Kind.CHUNK and (ticket is None or number > ticket.number):
            ticket = self._tickets[dealer] = Ticket(dealer, number)
        return ticket if ticket is not None and ticket.number == number else None

    def _queue(self, ticket: Ticket, message: Message) -> None:
        """Queue a chunk and ask for the supplies and tensors that it lacks."""
        try:
            chunk = WaitingChunk.of(message, self._kept, self._settings.limits)
        except FrameError as error:
            self._fail(ticket, None, "frame", str(error))
            return
        ticket.waiting.append(chunk)
        if self._supplies.is_stale(chunk.key):
            return  # the chunk is refused when its turn comes
        self._supplies.ask(chunk.key)
        self._need(ticket, chunk)

    def _need(self, ticket: Ticket, chunk: WaitingChunk) -> None:
        """Ask for the tensors that a chunk lacks, and for its spare tensors if the handler cannot do without them."""
        names = chunk.needs(bool(chunk.spares) and self._handler.lacks(chunk.key))
        if names:
            header = {"ticket": ticket.number, "chunk": chunk.key.chunk, "names": names}
            rows = {ROWS: chunk.lacking} if len(chunk.lacking) else {}
            self._pump.send(ticket.dealer, Message(Kind.NEED, header, rows))

    def _supplied(self, sender: bytes, message: Message) -> None:
        if message.header["what"] == "tensors":
            ticket = self._tickets.get(sender)
            if ticket is not None and ticket.number == message.header.get("ticket"):
                self._fill(ticket, message)
            return
        try:
            begun = self._supplies.take(message)
        except Exception as error:  # the handler's refusal of a stage or of parameters
            self._fail_waiting(message.header, "handler", _text(error))
            return
        if begun is not None:
            self._kept.begin_pass(*begun)
        for ticket in list(self._tickets.values()):
            self._advance(ticket)

    def _fill(self, ticket: Ticket, message: Message) -> None:
        try:
            for item in ticket.waiting:
                if isinstance(item, WaitingChunk) and item.key.chunk == message.header.get("chunk"):
                    item.fill(message, self._kept)
        except FrameError as error:
            self._fail(ticket, None, "frame", str(error))
            return
        self._advance(ticket)

    def _not_supplied(self, message: Message) -> None:
        if "what" in message.header:
            self._supplies.drop(message.header)
            self._fail_waiting(message.header, message.header["code"], message.header["text"])
        else:
            log.warning("error from a peer: %s", message.header["text"])

    def _forget(self, run: str) -> None:
        self._kept.forget(run)
        self._supplies.forget(run)
        self._handler.forget(run)

    # -- work --------------------------------------------------------------------------------------------------------

    def _advance(self, ticket: Ticket) -> None:
        """Run the chunks at the head of a ticket's queue, as long as they are complete."""
        while ticket.waiting and not ticket.over and not self._pump.is_forgotten:
            head = ticket.waiting[0]
            if isinstance(head, WaitingEnd):
                self._send_sums(ticket, head)
            elif self._supplies.is_stale(head.key):
                text = f"epoch {head.key.pass_number} is over, epoch {self._supplies.pass_number(head.key.run)} runs"
                self._fail(ticket, head, "stale", text)
            elif not head.complete or not self._supplies.has(head.key) or self._has_lost(ticket, head):
                return
            else:
                self._run_chunk(ticket, head)
            if ticket.waiting and ticket.waiting[0] is head:
                ticket.waiting.popleft()

    def _has_lost(self, ticket: Ticket, chunk: WaitingChunk) -> bool:
        """Return True if a chunk that was complete needs its spare tensors after all.

        That happens if another attempt has used up the values that the handler had kept.
        """
        if chunk.spares:
            self._need(ticket, chunk)
        return not chunk.complete

    def _run_chunk(self, ticket: Ticket, chunk: WaitingChunk) -> None:
        try:
            space = self._regions.space(chunk.reply)
            tensors = self._handler.chunk(chunk.key, chunk.tensors, Room(space))
            ticket.add({name: tensor for name, tensor in tensors.items() if is_summed(name)})
            rows = {name: tensor for name, tensor in tensors.items() if not is_summed(name)}
            header = {"ticket": ticket.number, "chunk": chunk.key.chunk, "digest": chunk.digest}
            self._pump.send(ticket.dealer, Message(Kind.RESULT, header, rows), space)
        except Exception as error:  # it is raised in the Dealer whose chunk this is
            self._fail(ticket, chunk, "handler", _text(error))

    def _send_sums(self, ticket: Ticket, end: WaitingEnd) -> None:
        sums, count = ticket.take_group()
        if count != end.count:
            self._fail(
                ticket, None, "frame", f"group {end.group} ended after {count} chunks, {end.count} were announced"
            )
            return
        header = {"ticket": ticket.number, "group": end.group, "count": count}
        self._pump.send(ticket.dealer, Message(Kind.PARTIAL, header, sums))

    def _fail(self, ticket: Ticket, chunk: WaitingChunk | None, code: str, text: str) -> None:
        ticket.over = True
        header: dict[str, Any] = {"code": code, "text": text[-ERROR_TEXT:], "ticket": ticket.number}
        if chunk is not None:
            header |= {"stage": chunk.key.stage, "partition": chunk.key.partition, "chunk": chunk.key.chunk}
        self._pump.send(ticket.dealer, Message(Kind.ERROR, header))

    def _fail_waiting(self, wanted: dict[str, Any], code: str, text: str) -> None:
        """Fail the tickets whose next chunk waits for a stage or for parameters that will not come."""
        for ticket in self._tickets.values():
            chunk = next((item for item in ticket.waiting if isinstance(item, WaitingChunk)), None)
            if chunk is not None and not ticket.over and self._supplies.waits_for(chunk.key, wanted):
                self._fail(ticket, chunk, code, text)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}\n{''.join(traceback.format_tb(error.__traceback__)[-ERROR_CALLS:])}"
