"""The engine's columns and collections: frames that Spark has yet to compute, with the frames that they depend on."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lotan.engines.rows.placement import ID, PART, Pinned
from lotan.engines.rows.sums import VALUE
from planner.spec import EdgeSet


@dataclass(eq=False)
class Made:
    """A frame that a step made. It may have several columns."""

    frame: DataFrame
    pinned: Pinned | None = None
    read: bool = False  # True if a later step reads it: then that step's rows compute these too


@dataclass(frozen=True, eq=False)
class ColumnHandle:
    """A column: `field` (array<float>) of a frame with part and id, placed by part."""

    made: Made
    field: str
    width: int
    static: str | None = None  # the column's name, if it is one of the vertex table

    def rows(self) -> DataFrame:
        """Return a frame of part, id and VALUE. A vertex that is not in it stands for a row of zeros."""
        self.made.read = True
        return self.made.frame.select(PART, ID, F.col(f"`{self.field}`").alias(VALUE))


@dataclass(frozen=True, eq=False)
class CollectionHandle:
    """Source rows for every chunk, see `lotan.engines.rows.collect`."""

    made: Made
    edges: EdgeSet
    columns: tuple[tuple[str, ColumnHandle], ...]  # names and handles of value0, value1 ...


@dataclass(frozen=True, eq=False)
class ContributionsHandle:
    """The rows that a stage returned for its sources: rows of `kind` in a frame with part, id, origin, chunk, position."""

    made: Made
    field: str
    kind: int

    def rows(self) -> DataFrame:
        """Return a frame of part, id, origin, chunk, position and VALUE, whose rows may lie in any partition."""
        self.made.read = True
        found = self.made.frame.where(F.col("kind") == self.kind)
        return found.select(PART, ID, "origin", "chunk", "position", F.col(f"`{self.field}`").alias(VALUE))


@dataclass
class PassState:
    """The frames that one pass has made so far."""

    number: int  # number of the pass: the messenger's epoch
    reads: dict[str, int]  # the number of steps that read a column or collection
    pipes: dict[str, int]  # the number of pipes that read a column or collection
    made: list[Made] = field(default_factory=list)
