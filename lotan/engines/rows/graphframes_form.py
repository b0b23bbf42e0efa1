"""Propagate by GraphFrames' own `aggregateMessages`, for sessions that have its JVM core.

A plan uses the join form (`lotan.engines.rows.propagate`) unless this one is asked for. Here the sum is computed at
once rather than with the pass: GraphFrames builds triplets with two joins, joins the receivers again, and counts the
result. The order of a sum is not fixed either, so two runs agree to float32's tolerance, not to the bit.
"""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lotan.engines.rows.placement import ID
from lotan.engines.rows.sums import VALUE
from lotan.errors import ConfigurationError

JVM_CLASS = "org.graphframes.GraphFramePythonAPI"


def has_core(spark: SparkSession) -> bool:
    """Return True if GraphFrames' JVM core is on the session's classpath. This downloads nothing."""
    from py4j.protocol import Py4JJavaError

    try:
        jvm = cast(Any, spark._jvm)  # it is None only before the first session
        jvm.Thread.currentThread().getContextClassLoader().loadClass(JVM_CLASS)
    except Py4JJavaError:  # ClassNotFoundException
        return False
    return True


def require_core(spark: SparkSession) -> None:
    """Raise a ConfigurationError if this form cannot run."""
    if not has_core(spark):
        raise ConfigurationError(
            "propagate by aggregateMessages was asked for, but GraphFrames' JVM core is not on Spark's classpath. Start the "
            "session with spark.jars.packages=io.graphframes:graphframes-spark4_2.13:<version>, or with spark.jars naming "
            "its jar; or leave the setting out to use the form that needs only Spark."
        )
    if not hasattr(F, "vector_sum"):
        raise ConfigurationError(
            "propagate by aggregateMessages needs vector_sum, which this Spark does not have. Use Spark 4.3 or newer; or "
            "leave the setting out to use the form that runs on any Spark."
        )


def propagate_by_messages(
    vertices: DataFrame, edges: DataFrame, column: DataFrame, *, weighted: bool, reverse: bool
) -> DataFrame:
    """Sum `column` along `edges`.

    Args:
        vertices: id of every vertex.
        edges: src, dst and, if `weighted`, weight.
        column: id, value (array<float>). Vertices without a row send nothing.
        weighted: True to multiply by the edge's weight.
        reverse: True to sum from destinations to sources.

    Returns:
        id, value, computed and persisted as a local checkpoint, which the caller frees
        (`lotan.engines.rows.placement.Pinned`). Vertices that no message reached have no row.

    Raises:
        ConfigurationError: If the session has no GraphFrames core, or its Spark no `vector_sum`.
    """
    require_core(vertices.sparkSession)
    from graphframes import GraphFrame
    from graphframes.lib import AggregateMessages

    senders = vertices.select(ID).join(column.select(ID, VALUE), ID, "left")
    sent = AggregateMessages.dst if reverse else AggregateMessages.src
    messages = [_message(sent, AggregateMessages.edge, weighted)]
    target = {"sendToSrc": messages} if reverse else {"sendToDst": messages}
    total = F.vector_sum(AggregateMessages.msg).alias(VALUE)
    persisted: DataFrame = GraphFrame(senders, edges).aggregateMessages([total], **target)
    try:
        # A copy without the plan that made it: later steps would compute the sum again if it were only unpersisted.
        return persisted.where(F.col(VALUE).isNotNull()).localCheckpoint(eager=True)
    finally:
        persisted.unpersist(blocking=True)


def _message(sender: Column, edge: Column, weighted: bool) -> Column:
    value = sender[VALUE]
    if not weighted:
        return value
    weight = edge["weight"].cast("float")
    return F.transform(value, lambda number: number * weight)
