"""The ZeroMQ transport: a ROUTER socket for the Router, a DEALER socket for everybody else.

One thread uses a socket; high-water marks, linger and largest frame are set explicitly. Peers of one process share
pyzmq's one context of the process, which is made anew after a fork; a Router has its own, because the handler that
checks client keys belongs to a context.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import deque
from collections.abc import Sequence

import zmq
import zmq.auth.thread
from zmq.utils.monitor import recv_monitor_message

from messenger.endpoint import Endpoint
from messenger.errors import AddressInUseError, DeadlineError, MessengerError
from messenger.frames import Frame
from messenger.keys import CurveKeys, check_bind
from messenger.settings import Settings
from messenger.transport import Received

FLUSH_SECONDS = 0.01  # between two tries to pass on what waits for a peer that was behind

_HANDSHAKE = (
    "the security handshake failed: keys on one side only, the wrong Router key, or another program on that port"
)
_REFUSALS = {
    zmq.Event.HANDSHAKE_FAILED_AUTH: "it does not accept this peer's key",
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL: _HANDSHAKE,
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL: _HANDSHAKE,
}


def connect(endpoint: Endpoint, identity: bytes, settings: Settings) -> ZmqLink:
    """A link to the Router at an endpoint. Connecting goes on in the background: see `messenger.joining.join`.

    Raises:
        MessengerError: the address or a key is malformed.
    """
    return ZmqLink(endpoint, identity, settings)


class ZmqLink:
    """A DEALER socket and a pipe to wake its thread. See `messenger.transport.Link`."""

    def __init__(self, endpoint: Endpoint, identity: bytes, settings: Settings) -> None:
        self.identity = identity
        self._settings = settings
        self._address = endpoint.address
        self._socket = _socket(zmq.Context.instance(), zmq.DEALER, settings)
        self._lock = threading.Lock()  # between wake and close: a closed descriptor's number may be another file's
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_out, False)
        os.set_blocking(self._wake_in, False)
        self._monitor: zmq.Socket[bytes] | None = None
        self._refusal: str | None = None
        try:
            self._connect(endpoint)
        except (zmq.ZMQError, ValueError) as error:
            self.close(0)
            raise MessengerError(
                f"cannot connect to {endpoint.address!r}: {error}; expected tcp://host:port and keys in Z85"
            ) from None
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._wake_out, zmq.POLLIN)

    def _connect(self, endpoint: Endpoint) -> None:
        self._socket.identity = self.identity
        if endpoint.server_key is not None:
            self._socket.curve_serverkey = endpoint.server_key.encode()
            self._socket.curve_publickey = (endpoint.public_key or "").encode()
            self._socket.curve_secretkey = (endpoint.secret_key or "").encode()
        self._monitor = self._socket.get_monitor_socket(sum(_REFUSALS))
        self._socket.connect(endpoint.address)

    def send(self, to: bytes, frames: Sequence[Frame]) -> None:
        """See `messenger.transport.Link`."""
        if not self._socket.poll(int(self._settings.connect_seconds * 1000), zmq.POLLOUT):
            raise DeadlineError(
                f"the connection to the Router at {self._address} took no message for"
                f" {self._settings.connect_seconds} s (connect_seconds): the Router is gone or stuck"
            )
        self._socket.send_multipart([to, *frames], copy=False)

    def receive(self, seconds: float) -> Received | None:
        """See `messenger.transport.Link`."""
        ready = dict(self._poller.poll(max(0, int(seconds * 1000))))
        if self._wake_out in ready:
            os.read(self._wake_out, 4096)
        if self._socket not in ready:
            return None
        sender, *frames = self._socket.recv_multipart(copy=False)
        return sender.bytes, [frame.buffer for frame in frames]

    def wake(self) -> None:
        """See `messenger.transport.Link`."""
        with self._lock, contextlib.suppress(BlockingIOError):  # full of wakes already
            if not self._socket.closed:
                os.write(self._wake_in, b"w")

    def refusal(self) -> str | None:
        """See `messenger.transport.Link`."""
        while self._monitor is not None and self._monitor.poll(0):
            event = zmq.Event(recv_monitor_message(self._monitor)["event"])
            self._refusal = _REFUSALS.get(event) or self._refusal
        return self._refusal

    def close(self, linger_seconds: float) -> None:
        """See `messenger.transport.Link`."""
        with self._lock:
            if self._socket.closed:
                return
            self._socket.disable_monitor()
            self._socket.close(linger=int(linger_seconds * 1000))
            os.close(self._wake_in)
            os.close(self._wake_out)


class ZmqHub:
    """A ROUTER socket. See `messenger.transport.Hub`.

    Args:
        bind: such as tcp://127.0.0.1:* (any free port; `address` tells which).
        keys: the Router's key pair; then only clients with one of the `allowed` public keys get in.

    Raises:
        UnsafeBindError: an address beyond loopback without keys.
        AddressInUseError: somebody else listens there.
        MessengerError: an address that cannot be listened on.
    """

    def __init__(
        self, bind: str, settings: Settings, keys: CurveKeys | None = None, allowed: frozenset[str] = frozenset()
    ) -> None:
        check_bind(bind, keys)
        _check_port(bind)
        self._settings = settings
        self._context = zmq.Context()
        self._authenticator = _Authenticator(self._context, allowed) if keys is not None else None
        self._socket = _socket(self._context, zmq.ROUTER, settings)
        self._socket.router_mandatory = True  # sending to who is gone is an error, not silence
        self._socket.router_handover = True  # a peer that reconnects gets its identity back
        if keys is not None:
            self._socket.curve_server = True
            self._socket.curve_publickey = keys.public.encode()
            self._socket.curve_secretkey = keys.secret.encode()
        self._bind(bind)
        self.address = bytes(self._socket.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
        self._backlog: dict[bytes, deque[list[Frame]]] = {}

    def _bind(self, bind: str) -> None:
        try:
            self._socket.bind(bind)
        except zmq.ZMQError as error:
            self.close()
            if error.errno == errno.EADDRINUSE:
                raise AddressInUseError(
                    f"cannot listen on {bind!r}: the port is in use; choose another, or * for a free one"
                ) from None
            raise MessengerError(
                f"cannot listen on {bind!r}: {error}; expected tcp://host:port of this machine"
            ) from None

    def send(self, peer: bytes, sender: bytes, frames: Sequence[Frame], droppable: bool = False) -> bool:
        """See `messenger.transport.Hub`."""
        queued = self._backlog.get(peer)
        if not queued:
            try:
                self._socket.send_multipart([peer, sender, *frames], zmq.NOBLOCK, copy=False)
                return True
            except zmq.Again:
                pass
            except zmq.ZMQError as error:
                if error.errno == errno.EHOSTUNREACH:
                    return False
                raise
        if not droppable:
            queued = self._backlog.setdefault(peer, deque())
            queued.append([peer, sender, *frames])
            if len(queued) > self._settings.backlog:
                del self._backlog[peer]
                return False
        return True

    def receive(self, seconds: float) -> tuple[bytes, list[Frame]] | None:
        """See `messenger.transport.Hub`."""
        self._flush()
        if self._backlog:
            seconds = min(seconds, FLUSH_SECONDS)
        if not self._socket.poll(max(0, int(seconds * 1000))):
            return None
        peer, *frames = self._socket.recv_multipart(copy=False)
        return peer.bytes, [frame.buffer for frame in frames]

    def _flush(self) -> None:
        """Pass on what had to wait because a peer was behind."""
        for peer, queued in list(self._backlog.items()):
            try:
                while queued:
                    self._socket.send_multipart(queued[0], zmq.NOBLOCK, copy=False)
                    queued.popleft()
            except zmq.Again:
                continue
            except zmq.ZMQError as error:
                if error.errno != errno.EHOSTUNREACH:
                    raise
            del self._backlog[peer]

    def close(self) -> None:
        """See `messenger.transport.Hub`."""
        if self._socket.closed:
            return
        self._socket.close(linger=int(self._settings.linger_seconds * 1000))
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()


class _Authenticator:
    """Lets clients in by their public key (ZAP), in a thread of its own."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], allowed: frozenset[str]) -> None:
        self._allowed = allowed
        self._thread = zmq.auth.thread.ThreadAuthenticator(context)
        self._thread.start()
        self._thread.configure_curve_callback("*", credentials_provider=self)

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether a client with this public key (Z85) may connect. Called by pyzmq."""
        return key.decode() in self._allowed

    def stop(self) -> None:
        self._thread.stop()


def _check_port(bind: str) -> None:
    """Refuse what ZeroMQ takes for another port: 65537 and -65535 for 1, "80 90" for 80."""
    port = bind.rpartition(":")[2]
    number = int(port) if port.isascii() and port.isdecimal() else -1
    if bind.startswith("tcp://") and port != "*" and not 0 <= number <= 65535:
        raise MessengerError(
            f"cannot listen on {bind!r}: {port!r} is no port from 0 to 65535; choose one of these, or * for a free one"
        )


def _socket(context: zmq.Context[zmq.Socket[bytes]], kind: int, settings: Settings) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    socket.linger = int(settings.linger_seconds * 1000)
    socket.sndhwm = settings.high_water_mark
    socket.rcvhwm = settings.high_water_mark
    socket.maxmsgsize = max(settings.limits.frame_bytes, settings.limits.header_bytes)
    socket.tcp_keepalive = 1
    return socket
