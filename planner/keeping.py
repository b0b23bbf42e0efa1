"""What backward does for a row of which forward kept nothing, beside reading it from a disk: the lesser is done.

Rough rates of one worker with one thread; only their ratios matter. They were not measured one by one.
"""

from __future__ import annotations

DISK_BYTES = 1.2e9  # a second, written and read through the cache of pages: half of it is the write
SENT_BYTES = 0.5e9  # a second: rows of a column, most of them sums over edges that are made for this alone
VALUES = 0.5e9  # numbers a second of elementwise operators, dropout's among them
PRODUCTS = 50e9  # multiplications and additions a second, of matrices


def spill_seconds(width: int) -> float:
    """To write and read a row of so many numbers."""
    return 2 * 4 * width / DISK_BYTES


def recompute_seconds(resent: int, computed: int, multiplied: int) -> float:
    """To make a row again.

    Args:
        resent: numbers of its inputs that have to be sent once more.
        computed: numbers of all values on the way.
        multiplied: multiplications of matrix products among them.
    """
    return 4 * resent / SENT_BYTES + computed / VALUES + multiplied / PRODUCTS
