"""The picture of a schedule: the sets of an epoch during which each partition is in memory."""

from __future__ import annotations

from collections.abc import Sequence

from planner.orders.order import Set

WIDTH, HEIGHT = 760.0, 360.0  # pixels of the bars, at most
WIDEST, HIGHEST, LOWEST = 40.0, 18.0, 3.0  # pixels of a set, and of a partition
LEFT, TOP, BELOW = 48.0, 26.0, 34.0  # pixels of what stands beside the bars
LABELLED = 11.0  # pixels of a partition from which each has its number beside it
BAR, RULE, WORDS = "#1d5fb8", "#cbd5e1", "#64748b"


def picture(sets: Sequence[Set]) -> str:
    """Return the picture as SVG, which reads well on a light and on a dark ground.

    A bar for each time that a partition is in memory: where a bar begins, a partition is read.

    Args:
        sets: The partitions in memory, set by set.
    """
    times = stays(sets)
    partitions = sorted(times)
    across = min(WIDEST, WIDTH / max(1, len(sets)))
    down = min(HIGHEST, max(LOWEST, HEIGHT / max(1, len(partitions))))
    gap = min(0.5, across / 4)
    right, bottom = LEFT + across * len(sets), TOP + down * len(partitions)
    body = [_words(LEFT, 14, "start", "when each partition is in memory")]
    for row, partition in enumerate(partitions):
        top = TOP + down * row
        if down >= LABELLED or row in (0, len(partitions) - 1):
            body.append(_words(LEFT - 6, top + down / 2 + 4, "end", str(partition)))
        for first, last in times[partition]:
            body.append(
                f'<rect x="{LEFT + across * first:.2f}" y="{top + 0.5:.1f}" width="{across * (last - first + 1) - gap:.2f}" '
                f'height="{down - 1:.1f}" fill="{BAR}"><title>partition {partition}: {_sets(first, last)}</title></rect>'
            )
    body.append(f'<path d="M{LEFT:.1f} {bottom + 2:.1f}H{right:.1f}" stroke="{RULE}"/>')
    body.append(_words(LEFT, bottom + 16, "start", "set 1"))
    if right - LEFT > 80:
        body.append(_words(right, bottom + 16, "end", f"set {len(sets):,}"))
    width, height = max(right + 10, 290), bottom + BELOW
    head = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    label = "the sets of an epoch during which each partition is in memory"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {head} role="img" aria-label="{label}">{"".join(body)}</svg>'


def stays(sets: Sequence[Set]) -> dict[int, list[tuple[int, int]]]:
    """Return the first and the last set of each time that a partition is in memory, by partition.

    >>> stays([(0, 1), (0, 2), (1, 2), (0, 1)])
    {0: [(0, 1), (3, 3)], 1: [(0, 0), (2, 3)], 2: [(1, 2)]}
    """
    found: dict[int, list[tuple[int, int]]] = {}
    for number, held in enumerate(sets):
        for partition in held:
            times = found.setdefault(partition, [])
            first = times.pop()[0] if times and times[-1][1] == number - 1 else number
            times.append((first, number))
    return found


def _sets(first: int, last: int) -> str:
    return f"set {first + 1:,}" if first == last else f"sets {first + 1:,} to {last + 1:,}"


def _words(x: float, y: float, anchor: str, words: str) -> str:
    style = f'text-anchor="{anchor}" font-size="11" font-family="sans-serif" fill="{WORDS}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{words}</text>'
