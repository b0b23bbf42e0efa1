package lotan

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.functions.col
import org.apache.spark.sql.types.{ArrayType, FloatType, LongType, StringType}

/** Rows of a table as a column of loaded blocks: the inverse of `Table`. One shuffle brings each row to its vertex. */
object Attached {

  /** The column, lazily.
    *
    * @param table
    *   `id`, and `values`, an array of float; one row for each vertex of the blocks
    */
  def apply(blocks: RDD[Block], table: DataFrame): RDD[Rows] = {
    val text = table.schema("id").dataType == StringType
    val placement = Placement(blocks.getNumPartitions)
    val idType = if (text) StringType else LongType
    val rows = table.select(col("id").cast(idType), col("values").cast(ArrayType(FloatType))).queryExecution.toRdd
    val parcels = Exchange.shuffle(rows.mapPartitions(packed(_, text, placement)), placement.partitions)
    blocks.zipPartitions(parcels) { (ofBlock, parts) =>
      val (ids, columns) = UnlinkedBlock.vertices(parts.toSeq, text, 1)
      Iterator.single(inOrder(ofBlock.next().ids, ids, columns.head))
    }
  }

  private def packed(rows: Iterator[InternalRow], text: Boolean, placement: Placement): Iterator[(Int, Parcel)] =
    new Packing(rows, placement.partitions, new VertexBucket(text, Seq(true))) {
      override protected def target(row: InternalRow): Int =
        if (text) placement.of(row.getUTF8String(0)) else placement.of(row.getLong(0))
    }

  /** Rows in the order of a block's vertices, from rows in the order of their sorted ids. */
  private def inOrder(vertices: Ids, ids: Ids, rows: Rows): Rows = {
    val out = Rows.zeros(vertices.size, rows.width)
    for (i <- 0 until vertices.size) {
      val row = ids.find(vertices, i)
      require(row >= 0, s"no row came for the vertex ${vertices.show(i)}")
      System.arraycopy(rows.values, row * rows.width, out.values, i * rows.width, rows.width)
    }
    out
  }
}
