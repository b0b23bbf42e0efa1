"""The ZeroMQ transport: a ROUTER socket for the Router, a DEALER socket for every other peer.

Only one thread uses a socket. High-water marks, linger and the largest frame are set explicitly. Peers of one process
share pyzmq's context of that process, which pyzmq makes anew after a fork. A Router has a context of its own, because
the handler that checks clients' keys belongs to a context.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import zmq
import zmq.auth.thread
from zmq.utils.monitor import recv_monitor_message

from messenger.endpoint import Endpoint
from messenger.errors import AddressInUseError, DeadlineError, MessengerError
from messenger.frames import Frame
from messenger.keys import ROUTER_NAME, CurveKeys, allowed_keys, check_bind
from messenger.settings import Settings
from messenger.transport import Received

FLUSH_SECONDS = 0.01  # time between two attempts to pass queued messages on to a slow peer

_HANDSHAKE = (
    "the security handshake failed: keys on one side only, the wrong Router key, or another program on that port"
)
_REFUSALS = {
    zmq.Event.HANDSHAKE_FAILED_AUTH: "it does not accept this peer's key",
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL: _HANDSHAKE,
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL: _HANDSHAKE,
}


def connect(endpoint: Endpoint, identity: bytes, settings: Settings) -> ZmqLink:
    """Return a link to the Router at an endpoint.

    Connecting goes on in the background. `messenger.joining.join` waits for its end.

    Raises:
        MessengerError: the address or a key is malformed.
    """
    return ZmqLink(endpoint, identity, settings)


def open_hub(bind: str, keys_directory: Path | None, settings: Settings) -> ZmqHub:
    """Return a hub that listens on an address, with the keys of a directory if one is given.

    Raises:
        MessengerError: the address or a key is unusable.
    """
    if keys_directory is None:
        return ZmqHub(bind, settings)
    return ZmqHub(bind, settings, CurveKeys.load(keys_directory, ROUTER_NAME), allowed_keys(keys_directory))


class ZmqLink:
    """A `messenger.transport.Link` made of a DEALER socket and a pipe that wakes its thread."""

    def __init__(self, endpoint: Endpoint, identity: bytes, settings: Settings) -> None:
        self.identity = identity
        self._settings = settings
        self._address = endpoint.address
        self._socket = _socket(zmq.Context.instance(), zmq.DEALER, settings)
        self._lock = threading.Lock()  # for wake and close: the number of a closed descriptor may be used again
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
        """Hand a message over to the socket.

        Raises:
            DeadlineError: the connection took no message for `connect_seconds`.
        """
        if not self._socket.poll(int(self._settings.connect_seconds * 1000), zmq.POLLOUT):
            raise DeadlineError(
                f"the connection to the Router at {self._address} took no message for"
                f" {self._settings.connect_seconds} s (connect_seconds): the Router is gone or stuck"
            )
        self._socket.send_multipart([to, *frames], copy=False)

    def receive(self, seconds: float) -> Received | None:
        """Return the next message, or None after that time or after `wake`."""
        ready = dict(self._poller.poll(max(0, int(seconds * 1000))))
        if self._wake_out in ready:
            os.read(self._wake_out, 4096)
        if self._socket not in ready:
            return None
        sender, *frames = self._socket.recv_multipart(copy=False)
        return sender.bytes, [frame.buffer for frame in frames]

    def wake(self) -> None:
        """Make a `receive` in another thread return."""
        with self._lock, contextlib.suppress(BlockingIOError):  # raised if the pipe is full, which wakes as well
            if not self._socket.closed:
                os.write(self._wake_in, b"w")

    def refusal(self) -> str | None:
        """Return the reason why the Router's side refused the connection, or None if it did not."""
        while self._monitor is not None and self._monitor.poll(0):
            event = zmq.Event(recv_monitor_message(self._monitor)["event"])
            self._refusal = _REFUSALS.get(event) or self._refusal
        return self._refusal

    def close(self, linger_seconds: float) -> None:
        """Close the socket, which may deliver messages for that time. A second call does nothing."""
        with self._lock:
            if self._socket.closed:
                return
            self._socket.disable_monitor()
            self._socket.close(linger=int(linger_seconds * 1000))
            os.close(self._wake_in)
            os.close(self._wake_out)


class ZmqHub:
    """A `messenger.transport.Hub` made of a ROUTER socket.

    Args:
        bind: the address to listen on, such as tcp://127.0.0.1:* for any free port, which `address` then names.
        settings: deadlines and limits.
        keys: the Router's key pair, or None to let every client in (default: None).
        allowed: with keys, the public keys of the clients that are let in (default: none).

    Raises:
        UnsafeBindError: the address is beyond loopback, and there are no keys.
        AddressInUseError: another program listens on the address.
        MessengerError: nobody can listen on the address.
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
        self._socket.router_mandatory = True  # sending to a peer that is gone raises an error
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
        """Queue a message for a peer. Return False if the peer is not connected or takes nothing any more."""
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
        """Return the next message, or None after that time."""
        self._flush()
        if self._backlog:
            seconds = min(seconds, FLUSH_SECONDS)
        if not self._socket.poll(max(0, int(seconds * 1000))):
            return None
        peer, *frames = self._socket.recv_multipart(copy=False)
        return peer.bytes, [frame.buffer for frame in frames]

    def _flush(self) -> None:
        """Pass queued messages on to peers that take messages again."""
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
        """Close the socket and its context. A second call does nothing."""
        if self._socket.closed:
            return
        self._socket.close(linger=int(self._settings.linger_seconds * 1000))
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()


class _Authenticator:
    """Checks clients' public keys (ZAP) in a thread of its own."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], allowed: frozenset[str]) -> None:
        self._allowed = allowed
        self._thread = zmq.auth.thread.ThreadAuthenticator(context)
        self._thread.start()
        self._thread.configure_curve_callback("*", credentials_provider=self)

    def callback(self, domain: str, key: bytes) -> bool:
        """Return True if a client with this public key (Z85) may connect. pyzmq calls this."""
        return key.decode() in self._allowed

    def stop(self) -> None:
        self._thread.stop()


def _check_port(bind: str) -> None:
    """Refuse a port that ZeroMQ would take for another one: it takes 65537 and -65535 for 1, and "80 90" for 80."""
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
