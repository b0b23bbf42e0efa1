"""Bytes, seconds and counts as text for people.

Memory is in powers of 1024, as limits are. Bytes that are moved or lie on a disk are in powers of 1000, as rates of disks are.
"""

from __future__ import annotations

PEAK_MEMORY = "peak memory"  # the name of a measured quantity


def size(count: int) -> str:
    """Return a number of bytes that are moved, or lie on a disk, as text for people.

    >>> size(512), size(2_500_000)
    ('512 B', '2.5 MB')
    """
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


def memory(count: int) -> str:
    """Return a number of bytes of memory as text for people.

    >>> memory(512), memory(2_500_000), memory(896 << 20), memory(3 << 30)
    ('512 B', '2.4 MiB', '896.0 MiB', '3.0 GiB')
    """
    for unit, scale in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


def quantity(what: str, unit: str, value: float) -> str:
    """Return an estimated or measured quantity as text for people.

    >>> quantity("vertices of a batch", "rows", 2200.0), quantity("evaluation", "seconds", 1.5)
    ('2,200 rows', '1.5 s')
    >>> quantity(PEAK_MEMORY, "bytes", 3 << 20), quantity("read from the disk", "bytes", 3e6)
    ('3.0 MiB', '3.0 MB')
    """
    if unit == "seconds":
        return duration(value)
    if unit == "bytes":
        return memory(round(value)) if what == PEAK_MEMORY else size(round(value))
    return f"{round(value):,} {unit}"


def counted(count: int, what: str) -> str:
    """Return a count with its noun, which has an "s" unless the count is 1.

    >>> counted(1, "worker"), counted(2048, "row")
    ('1 worker', '2,048 rows')
    """
    return f"{count:,} {what}{'s' * (count != 1)}"


def duration(seconds: float) -> str:
    """Return a number of seconds as text for people.

    >>> duration(0), duration(0.00042), duration(0.0123), duration(4.26), duration(1234.5)
    ('0 us', '420 us', '12.3 ms', '4.3 s', '1,234 s')
    """
    if seconds < 9.995e-4:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.1f} s" if seconds < 999.5 else f"{seconds:,.0f} s"
