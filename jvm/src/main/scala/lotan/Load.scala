package lotan

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.functions.col
import org.apache.spark.sql.types.{ArrayType, FloatType, LongType, StringType}
import org.apache.spark.storage.StorageLevel

/** A graph as blocks: one per partition, cached until `close`.
  *
  * @param blocks
  *   the topology
  * @param columns
  *   the vertices' columns, by name
  * @param hubs
  *   true if any block has hubs whose edges are spread
  * @param turned
  *   the topology of the same vertices with both ends of each edge exchanged; None if no step needs it
  */
final class LoadedGraph private[lotan] (
    val blocks: RDD[Block],
    val columns: Map[String, RDD[Rows]],
    val hubs: Boolean,
    val turned: Option[RDD[Block]] = None
) extends AutoCloseable {

  /** The blocks that have the edges of a set. Their vertices are the same, in the same order. */
  def along(edges: EdgeSet): RDD[Block] =
    if (!edges.reversed) blocks
    else
      turned.getOrElse(
        throw new IllegalArgumentException(s"a step reads the edges '${edges.name}', which were not loaded")
      )

  private val byOwner = mutable.Map.empty[(EdgeSet, Boolean, Boolean), RDD[EdgesByOwner]]

  /** The edges of a step in turn, cached from their first use until `close`. */
  private[lotan] def edgesOf(inTurn: InTurn): RDD[EdgesByOwner] = byOwner.synchronized {
    val key = (inTurn.step.edges, inTurn.step.reverse, inTurn.hubs)
    byOwner.getOrElseUpdate(key, inTurn.edges(along(inTurn.step.edges)).persist(StorageLevel.MEMORY_AND_DISK))
  }

  /** Unpersists all that is cached. A second call does nothing. */
  override def close(): Unit =
    for (one <- (blocks +: columns.values.toSeq) ++ turned ++ byOwner.values) one.unpersist(blocking = true)
}

/** Makes blocks of a graph's tables, with one pass over the vertices and one shuffle of the edges. Nothing is collected.
  *
  * Map tasks sort rows into parcels of `ParcelRows` by target partition, so that a shuffle moves arrays and no objects.
  *
  * @param partitions
  *   how many blocks
  * @param features
  *   columns of the vertices to keep, of type float or array of float; arrays of a column are equally long
  * @param weight
  *   column of the edges, of type float; None for weights of 1
  * @param data
  *   column of the edges, an array of float; None for edges without data
  * @param dataWidth
  *   the length of each array of `data`, which a partition without edges cannot see
  * @param hubEdges
  *   that a vertex has at least between two partitions if its edges are to be spread: see `Hubs`
  * @param turned
  *   true to make blocks of the edges with both ends exchanged as well, with a second pass over both tables
  */
final case class Load(
    partitions: Int,
    features: Seq[String],
    weight: Option[String],
    hubEdges: Int = Hubs.LeastEdges,
    data: Option[String] = None,
    dataWidth: Int = 0,
    turned: Boolean = false
) {
  private val placement = Placement(partitions)

  /** The blocks of a graph, computed and cached.
    *
    * @param vertices
    *   `id` (an integer type or string), no two equal, and the columns of `features`
    * @param edges
    *   `src`, `dst` of the id's type, and the weight
    */
  def apply(vertices: DataFrame, edges: DataFrame): LoadedGraph =
    if (!turned) blocksOf(vertices, edges, identity)
    else {
      // Sums along these edges take the way along the others. So they have no hubs to spread, and no transposes.
      val alone = copy(features = Nil, hubEdges = Int.MaxValue, turned = false)
      val ends = Seq(col("dst").as("src"), col("src").as("dst"))
      val others = edges.columns.filterNot(Set("src", "dst")).toSeq.map(col)
      val other = alone.blocksOf(vertices, edges.select(ends ++ others: _*), _.asRows)
      try {
        val loaded = blocksOf(vertices, edges, identity)
        new LoadedGraph(loaded.blocks, loaded.columns, loaded.hubs, Some(other.blocks))
      } catch {
        case failure: Throwable =>
          other.close()
          throw failure
      }
    }

  private def blocksOf(vertices: DataFrame, edges: DataFrame, finish: Block => Block): LoadedGraph = {
    val text = vertices.schema("id").dataType == StringType
    val parts = tables(vertices, edges, text).persist(StorageLevel.MEMORY_AND_DISK)
    val requests = Exchange(parts.flatMap(_.requests), partitions)
    val together =
      parts.zipPartitions(requests)((part, received) => Iterator.single(part.next().answer(received.next())))
    together.persist(StorageLevel.MEMORY_AND_DISK)
    val (blocks, rows) = (together.map(one => finish(one._1)), columns(together))
    // Each by itself: where memory is short, Spark puts aside a column that is read once a pass, not the edges with it.
    val all: Seq[RDD[_]] = blocks +: rows.values.toSeq
    for (one <- all) one.persist(StorageLevel.MEMORY_AND_DISK)
    try {
      Facade.force(all.asJava)
      new LoadedGraph(blocks, rows, blocks.map(_.hubs.nonEmpty).collect().contains(true))
    } catch {
      case failure: Throwable =>
        all.foreach(_.unpersist(blocking = false))
        throw failure
    } finally
      for (one <- Seq(parts, together)) { // what is cached holds the same arrays
        val _ = one.unpersist(blocking = false)
      }
  }

  private def columns(together: RDD[(Block, Array[Rows])]): Map[String, RDD[Rows]] =
    features.zipWithIndex.map { case (name, index) => name -> together.map(_._2(index)) }.toMap

  private def tables(vertices: DataFrame, edges: DataFrame, text: Boolean): RDD[UnlinkedBlock] = {
    val idType = if (text) StringType else LongType
    val names = features.map { name =>
      vertices.schema(name).dataType match {
        case _: ArrayType => col(name).cast(ArrayType(FloatType))
        case _ => col(name).cast(FloatType)
      }
    }
    val arrays = features.map(vertices.schema(_).dataType.isInstanceOf[ArrayType])
    val ofVertices = vertices.select(col("id").cast(idType) +: names: _*).queryExecution.toRdd
    val ends = Seq(col("src").cast(idType), col("dst").cast(idType))
    val numbers = weight.map(col(_).cast(FloatType)) ++ data.map(col(_).cast(ArrayType(FloatType)))
    val ofEdges = edges.select(ends ++ numbers: _*).queryExecution.toRdd
    val vertexParcels = Exchange.shuffle(ofVertices.mapPartitions(packVertices(_, text, arrays)), partitions)
    val edgeParcels = Exchange.shuffle(ofEdges.mapPartitions(packEdges(_, text)), partitions)
    // The partition's number, for the task's need not be the same: a task may compute what another one lacks.
    val numbered = vertexParcels.mapPartitionsWithIndex((partition, parts) => Iterator.single(partition -> parts))
    numbered.zipPartitions(edgeParcels) { (ofVertices, edgeParts) =>
      val (partition, vertexParts) = ofVertices.next()
      val ofData = data.map(_ => dataWidth)
      Iterator.single(
        UnlinkedBlock(
          partition,
          placement,
          text,
          arrays.length,
          weight.isDefined,
          hubEdges,
          ofData,
          vertexParts,
          edgeParts
        )
      )
    }
  }

  private def packVertices(rows: Iterator[InternalRow], text: Boolean, arrays: Seq[Boolean]): Iterator[(Int, Parcel)] =
    new Packing(rows, partitions, new VertexBucket(text, arrays)) {
      override protected def target(row: InternalRow): Int = placementOf(row, 0, text)
    }

  private def packEdges(rows: Iterator[InternalRow], text: Boolean): Iterator[(Int, Parcel)] =
    new Packing(rows, partitions, new EdgeBucket(text, weight.isDefined, data.isDefined)) {
      override protected def target(row: InternalRow): Int = placementOf(row, 1, text)
    }

  private def placementOf(row: InternalRow, field: Int, text: Boolean): Int =
    if (text) placement.of(row.getUTF8String(field)) else placement.of(row.getLong(field))
}
