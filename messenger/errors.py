"""The messenger's errors."""

from __future__ import annotations


class MessengerError(RuntimeError):
    """The root: something between Dealer, Router and workers failed; says which peer and what to do."""
