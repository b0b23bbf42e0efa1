"""Memory that was freed, and that the C library keeps for later."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""The numbers of two parameters of glibc's `mallopt`: from which size on a piece is mapped by itself and unmapped when it is
freed, and how much freed memory at the end of the heap goes back to the system."""

KEEPING = {MMAP_THRESHOLD: 1 << 30, TRIM_THRESHOLD: (1 << 31) - 1}
USUAL = {MMAP_THRESHOLD: 32 << 20, TRIM_THRESHOLD: 64 << 20}
"""The greatest values to which glibc raises them by itself."""

_lock = threading.Lock()
_keeping = 0  # how many want freed memory to be kept


def give_back_freed() -> None:
    """Return freed memory of this process to the system: Arrow's, and the C library's where that is glibc.

    Both keep what is freed between pieces that are in use. After work that made many pieces of some megabytes, that can
    be hundreds of megabytes.
    """
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Have the C library keep large pieces that are freed, where it is glibc. Elsewhere nothing happens.

    Usually it gives each tensor of many megabytes back to the system. The next one of that size then costs as much time in
    the kernel, which clears its pages, as in the operator that fills it. At the end everything is given back.
    """
    _change(+1)
    try:
        yield
    finally:
        _change(-1)


def _change(by: int) -> None:
    global _keeping
    with _lock:
        before, _keeping = _keeping, _keeping + by
        if bool(before) != bool(_keeping):
            with suppress(OSError, AttributeError):
                library = ctypes.CDLL(None)
                for parameter, value in (KEEPING if _keeping else USUAL).items():
                    library.mallopt(parameter, value)
            if not _keeping:
                give_back_freed()
