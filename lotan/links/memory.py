"""The memory of a link task beside that of its plan: the links themselves, and the scores that are computed at one time."""

from __future__ import annotations

from dataclasses import dataclass

from lotan.links.pairs import SCORES

NUMBER_BYTES = 4
LINK_BYTES = (
    200  # of a link: ends, relation and split, among all and among those of training, and twice among known ones
)
LINK_BYTES_ON_SPARK = 320  # the same, with the ends and the left-out edges of an epoch, which go to Spark
RANKED_NUMBERS = 1 << 22
"""The numbers of rows from Spark among which links are ranked at one time: 16 MiB."""
# Measured as numbers for each score, with the four decoders: of both ends, with what autograd keeps.
TRAINED_COPIES = 13
RANKED_COPIES = 6
ENDS_COPIES = 10  # rows of both ends of the links of a part, with their products and gradients
ENDS_HELD = 3  # copies of the rows of ends: all of them once, and those of each end
ROW_COPIES = 3  # rows that are scored: their gradient, that of a part, and both in the graph's order


@dataclass(frozen=True)
class ScoreSizes:
    """The sizes on which the memory for scores depends."""

    links: int  # all of the graph
    batch: int  # links that share their negatives
    candidates: int  # the negatives at one end
    rows: int  # rows of a training pass among which ends and candidates are
    vertices: int  # rows among which links are ranked at one time
    width: int  # of a row
    ends: int = 0  # rows of the ends of ranked links, which are held beside these
    link_bytes: int = LINK_BYTES

    @property
    def least(self) -> int:
        """The least number of scores at one time: those of one link."""
        return min(SCORES, max(self.candidates, self.vertices))

    def bytes(self, scores: int) -> int:
        """Return the bytes for a number of scores at one time."""
        some = min(self.batch, max(1, scores // max(1, self.candidates)))
        row = self.width * NUMBER_BYTES
        trained = (
            TRAINED_COPIES * NUMBER_BYTES * some * self.candidates + (ENDS_COPIES * some + ROW_COPIES * self.rows) * row
        )
        ranked = RANKED_COPIES * NUMBER_BYTES * max(scores, self.vertices) + ROW_COPIES * self.vertices * row
        ranked += ENDS_HELD * self.ends * row
        return self.link_bytes * self.links + max(trained, ranked)

    def fitting(self, room: int | None) -> int:
        """Return the number of scores at one time that fits into some bytes, at least `least`.

        Args:
            room: The bytes; None: there is no limit.
        """
        scores = SCORES
        while room is not None and scores > self.least and self.bytes(scores) > room:
            scores = max(self.least, scores // 2)
        return scores


def ranked_rows(width: int) -> int:
    """Return the number of rows from Spark among which links are ranked at one time.

    Args:
        width: The numbers of a row.
    """
    return max(1, RANKED_NUMBERS // max(1, width))
