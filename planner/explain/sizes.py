"""Bytes, seconds and counts as text for people."""

from __future__ import annotations


def size(count: int) -> str:
    """Return a number of bytes as text for people.

    >>> size(512), size(2_500_000)
    ('512 B', '2.5 MB')
    """
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


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
