"""Bytes in words."""

from __future__ import annotations


def size(count: int) -> str:
    """Bytes for people.

    >>> size(512), size(2_500_000)
    ('512 B', '2.5 MB')
    """
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"
