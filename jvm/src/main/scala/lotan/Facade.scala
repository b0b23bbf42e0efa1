package lotan

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.DataFrame
import org.apache.spark.storage.StorageLevel

import lotan.messenger.{Dealers, Endpoint, Settings}

/** All that the Python side may call. Its other half is `lotan/engines/blocks/facade.py`; a test compares the two name lists. */
object Facade {

  /** Version of this jar, to be compared with the package's. */
  def version(): String = Version.read()

  /** Blocks of a graph's tables: see `Load`. `weight` is null where edges have none. */
  def load(
      vertices: DataFrame,
      edges: DataFrame,
      partitions: Int,
      columns: util.List[String],
      weight: String
  ): LoadedGraph =
    Load(partitions, columns.asScala.toSeq, Option(weight))(vertices, edges)

  /** A loaded column; freed with its graph. */
  def column(graph: LoadedGraph, name: String): RDD[Rows] =
    graph.columns.getOrElse(
      name,
      throw new IllegalArgumentException(
        s"no column '$name' was loaded; there are ${graph.columns.keys.toSeq.sorted.mkString(", ")}"
      )
    )

  /** Sums along edges, lazy: see `Propagate`. The caller persists `column`.
    *
    * @param shuffled
    *   by a shuffle even where all partitions are in one JVM; the result is the same
    */
  def propagate(
      graph: LoadedGraph,
      column: RDD[Rows],
      edges: String,
      weighted: Boolean,
      reverse: Boolean,
      shuffled: Boolean
  ): RDD[Rows] = {
    val shared = !shuffled && graph.blocks.sparkContext.isLocal
    Propagate(EdgeSet(edges), weighted, reverse)(graph.blocks, column, shared)
  }

  /** Keeps a column from its first use until `release`. */
  def persist(column: RDD[Rows]): RDD[Rows] = column.persist(StorageLevel.MEMORY_AND_DISK)

  /** Computes a column, and keeps nothing of it that is not persisted. Returns the number of rows. */
  def force(column: RDD[Rows]): Long = column.map(_.count.toLong).fold(0L)(_ + _)

  /** A column as a table of `id` and `values`. */
  def table(graph: LoadedGraph, column: RDD[Rows]): DataFrame = Table(graph.blocks, column)

  /** Frees a persisted column. */
  def release(column: RDD[Rows]): Unit = { val _ = column.unpersist(blocking = false) }

  /** Where the messenger's Router is, for `messenger.Dealers`; the keys are null where it asks for none. */
  def endpoint(address: String, server: String, public: String, secret: String): Endpoint =
    Endpoint.of(address, server, public, secret)

  /** The messenger's settings, by their names in Python. */
  def messengerSettings(values: util.Map[String, _]): Settings = Settings.of(values)

  /** Closes this JVM's connections to Routers. */
  def disconnect(): Unit = Dealers.closeAll()

  /** Frees a graph's blocks and columns. */
  def close(graph: LoadedGraph): Unit = graph.close()
}
