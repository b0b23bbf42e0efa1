"""The placement of rows: their Spark partition, their order, and the time for which they stay persisted.

Vertex `v` belongs to partition `pmod(xxhash64(v), P)`, so that forward and backward agree without a lookup. Frames that
are placed by the same rule join without a shuffle: Spark reads the placement from the plan, never from the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

PART = "part"  # int: the partition of a row's vertex
ID = "id"


@dataclass(frozen=True)
class Placement:
    """The rule by which vertices and edges find their partition."""

    partitions: int

    def of(self, column: str) -> Column:
        """Return the partition, an int, of the vertex whose id is in `column`."""
        return F.pmod(F.xxhash64(F.col(column)), F.lit(self.partitions)).cast("int")

    def place(self, frame: DataFrame, column: str = PART) -> DataFrame:
        """Bring every row to the Spark partition that `column` names, by one shuffle.

        Before Spark 4.1 there is no `repartitionById`. Hashing the partition number keeps the rows of one partition
        together, but may put several partitions into one task.
        """
        by_id = getattr(frame, "repartitionById", None)
        if by_id is not None:
            return cast(DataFrame, by_id(self.partitions, F.col(column)))
        return frame.repartition(self.partitions, F.col(column))


def open_session(spark: SparkSession, partitions: int, batch_rows: int) -> SparkSession:
    """Open a session of our own on the user's Spark. Its settings shape our plans and do not change the user's queries."""
    session = spark.newSession()
    settings = {
        "spark.sql.adaptive.enabled": "false",  # would change partition counts, and with them the placement
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        # allows to join and group by (part, id) on rows placed by part alone
        "spark.sql.requireAllClusterKeysForCoPartition": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(batch_rows),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # A graph from memory stays beside our plans, not in them: every pass would walk over all its rows.
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        # Spark would find out by jobs of its own which rows of one side a join can leave out if the other side is
        # within a level. A pass over 20,000 vertices took nearly twice as long with it.
        "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
        # Our plans are small and made anew in every pass: deriving constraints costs more than it finds.
        "spark.sql.constraintPropagation.enabled": "false",
    }
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


@contextmanager
def active_session_kept(spark: SparkSession) -> Iterator[None]:
    """Leaves that session active which was active before the block.

    PySpark makes a session active when it creates a frame. In a session of ours a user's views could not be found.
    """
    active = SparkSession.getActiveSession()
    try:
        yield
    finally:
        # PySpark has no public way to say which session is active, and remembers it itself beside the JVM.
        SparkSession._activeSession = active
        sessions = SparkSession._get_j_spark_session_class(spark._jvm)
        if active is None:
            sessions.clearActiveSession()
        else:
            sessions.setActiveSession(active._jsparkSession)


@contextmanager
def brought_over(session: SparkSession, frames: Sequence[DataFrame]) -> Iterator[list[DataFrame]]:
    """Yield frames of another session as frames of `session`. The views that carry them are dropped after the block."""
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
    """A frame without its plan, whose rows are persisted from their first computation until `release`.

    Without the cut, plans would double in size with every layer: the plan of a backward column contains that of each
    forward column that it reads, and these contain each other.
    """

    frame: DataFrame

    def release(self) -> None:
        """Drop the rows. They cannot be computed again."""
        # Spark has no public way to release a local checkpoint: its rows are the RDD at the root of its plan. Nor is
        # there a public way without a warning that the rows cannot be computed again; a user's log would have several
        # per epoch.
        rows = self.frame._jdf.queryExecution().logical().rdd()
        rows.sparkContext().unpersistRDD(rows.id(), False)


def pin(frame: DataFrame) -> Pinned:
    """Persist the rows of `frame` (in memory, then on disk) once some action computes them. This runs nothing itself."""
    return Pinned(frame.localCheckpoint(eager=False))


def uncoupled(frame: DataFrame) -> DataFrame:
    """Return the same rows under a plan of one operator. Lost rows are still computed again.

    Spark walks over the plans of all frames that a pass reads, even if their rows are persisted.
    """
    session, rows = frame.sparkSession, frame._jdf
    return DataFrame(session._jsparkSession.createDataFrame(rows.toJavaRDD(), rows.schema()), session)


def without_plan(frame: DataFrame) -> DataFrame:
    """Return the rows of a persisted frame as a frame whose plan is these rows alone. This runs nothing itself.

    Plans that read it several times stay small. Unlike the rows of `pin`, those that are lost are computed again. The new
    frame does not know how its rows are placed.
    """
    # Spark has no public way from rows in its own form to a frame, and one by way of Python would copy them
    rows, session = frame._jdf.queryExecution().toRdd(), frame.sparkSession
    return DataFrame(session._jsparkSession.internalCreateDataFrame(rows, frame._jdf.schema(), False), session)
