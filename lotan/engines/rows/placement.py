"""Where rows lie: which Spark partition, in which order, and for how long they are held.

Vertex `v` lives in partition `pmod(xxhash64(v), P)`, so forward and backward agree without asking anyone. Frames that are
placed by the same rule join without a shuffle: Spark reads the placement from the plan, never from the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

PART = "part"  # int: the partition of a row's vertex
ID = "id"


@dataclass(frozen=True)
class Placement:
    """The one rule by which vertices and edges find their partition."""

    partitions: int

    def of(self, column: str) -> Column:
        """The partition of the vertex whose id is in `column`, int."""
        return F.pmod(F.xxhash64(F.col(column)), F.lit(self.partitions)).cast("int")

    def place(self, frame: DataFrame, column: str = PART) -> DataFrame:
        """Bring every row to the Spark partition that `column` names: one shuffle.

        Before Spark 4.1 there is no `repartitionById`; hashing the partition number keeps rows of one partition together,
        and may put several partitions into one task.
        """
        by_id = getattr(frame, "repartitionById", None)
        if by_id is not None:
            return by_id(self.partitions, F.col(column))
        return frame.repartition(self.partitions, F.col(column))


def open_session(spark: SparkSession, partitions: int, batch_rows: int) -> SparkSession:
    """A session of our own on the user's Spark: its settings shape our plans and leave the user's queries alone."""
    session = spark.newSession()
    settings = {
        "spark.sql.adaptive.enabled": "false",  # would re-plan partition counts, and with them the placement
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        # join and group by (part, id) on rows placed by part alone
        "spark.sql.requireAllClusterKeysForCoPartition": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(batch_rows),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # a graph that comes from memory lies beside our plans, not in them: every pass would walk over all its rows
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        # would find out by jobs of its own what a join can leave out of one side where the other is within a level: a
        # pass over 20,000 vertices took nearly twice as long
        "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
        # our plans are small and made anew in every pass; deriving constraints costs more than it finds
        "spark.sql.constraintPropagation.enabled": "false",
    }
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


@contextmanager
def brought_over(session: SparkSession, frames: Sequence[DataFrame]) -> Iterator[list[DataFrame]]:
    """Frames of another session as frames of `session`. The views that carry them are gone after the block."""
    names: list[str] = []
    try:
        moved = []
        for frame in frames:
            if frame.sparkSession._jsparkSession.equals(session._jsparkSession):
                moved.append(frame)
                continue
            names.append(f"lotan_{uuid4().hex}")
            frame.createGlobalTempView(names[-1])
            database = session.conf.get("spark.sql.globalTempDatabase", "global_temp")
            moved.append(session.table(f"{database}.{names[-1]}"))
        yield moved
    finally:
        for name in names:
            session.catalog.dropGlobalTempView(name)


@dataclass(frozen=True)
class Pinned:
    """A frame whose rows are kept from the first time they are computed until `release`, with its plan cut off.

    Cutting matters: the plan of a backward column contains that of each forward column it reads, which contain each
    other; left whole, plans double in size with every layer.
    """

    frame: DataFrame

    def release(self) -> None:
        """Drop the rows. They can be computed again no more."""
        # Spark has no public way to release a local checkpoint: its rows are the RDD at the root of its plan. Nor has it one
        # without a warning that they cannot be computed again, several an epoch in the logs of a user's session.
        rows = self.frame._jdf.queryExecution().logical().rdd()
        rows.sparkContext().unpersistRDD(rows.id(), False)


def pin(frame: DataFrame) -> Pinned:
    """Keep the rows of `frame` (memory, then disk) once some action computes them. Runs nothing itself."""
    return Pinned(frame.localCheckpoint(eager=False))


def uncoupled(frame: DataFrame) -> DataFrame:
    """The same rows under a plan of one operator; lost ones are computed again all the same.

    Spark walks over the plans of all that a pass reads, however much of it is held.
    """
    session, rows = frame.sparkSession, frame._jdf
    return DataFrame(session._jsparkSession.createDataFrame(rows.toJavaRDD(), rows.schema()), session)
