"""A Dealer's connection to the Router."""

from __future__ import annotations

import os

from messenger.endpoint import Endpoint
from messenger.fields import Kind
from messenger.frames import Message, encode
from messenger.joining import DEALER_ROLE, Welcome, join, new_identity
from messenger.settings import Settings
from messenger.transport import ROUTER, Connect, Link


class Connection:
    """A link through which the Router has let a Dealer in. It belongs to the process that made it.

    Args:
        endpoint: the Router's address and the Dealer's keys.
        name: the Dealer's name, for messages to people.
        settings: deadlines and limits.
        connect: opens the link.

    Raises:
        MessengerError: the Router cannot be reached or refuses the Dealer.
    """

    def __init__(self, endpoint: Endpoint, name: str, settings: Settings, connect: Connect) -> None:
        self.endpoint = endpoint
        self._name = name
        self._settings = settings
        self._pid = os.getpid()
        self.link: Link = connect(endpoint, new_identity(DEALER_ROLE, name), settings)
        self.welcome: Welcome
        try:
            self.join()
        except BaseException:
            self.link.close(0)
            raise

    @property
    def is_ours(self) -> bool:
        """True in the process that made the connection, False in a process that was forked from it later."""
        return self._pid == os.getpid()

    def join(self) -> None:
        """Introduce the Dealer to the Router: at first, and again after the Router has forgotten it.

        Raises:
            MessengerError: the Router does not answer or refuses the Dealer.
        """
        self.welcome = join(self.link, DEALER_ROLE, self._name, self.endpoint.address, self._settings)

    def ping(self) -> None:
        """Ask the Router for a sign of life."""
        self.link.send(ROUTER, encode(Message(Kind.PING), self._settings.limits))

    def close(self) -> None:
        """Disconnect. In a forked process the link is left alone, because it belongs to the parent."""
        if self.is_ours:
            self.link.close(self._settings.linger_seconds)
