"""Memory that was freed, and that the C library keeps for later."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def give_back_freed() -> None:
    """Return freed memory of this process to the system, where the C library is glibc. Elsewhere nothing happens.

    glibc keeps what is freed between pieces that are in use. After work that made many pieces of some megabytes, that can
    be hundreds of megabytes.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
