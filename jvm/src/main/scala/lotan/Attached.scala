package lotan

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.DataFrame

/** Rows that the driver holds, as a column of loaded blocks. One shuffle brings each piece of rows to its partition.
  *
  * `Pieces` is the way back.
  */
object Attached {

  /** The column, lazily.
    *
    * @param table
    *   rows of consecutive vertices of a partition, see `Pieces`; together all that are within the level
    * @param width
    *   numbers per row
    * @param within
    *   the level up to which vertices have a row
    */
  def apply(blocks: RDD[Block], table: DataFrame, width: Int, within: Int = Block.All): RDD[Rows] = {
    val parcels = table.select("partition", "first", "values").queryExecution.toRdd.map { row =>
      val first = new LongIds(Array(row.getInt(1).toLong))
      row.getInt(0) -> new Parcel(0, Seq(first), width, Pieces.numbers(row.getBinary(2)))
    }
    blocks.zipPartitions(Exchange.shuffle(parcels, blocks.getNumPartitions)) { (ofBlock, parts) =>
      Iterator.single(together(Rows.zeros(ofBlock.next().rows(within), width), parts))
    }
  }

  private def together(out: Rows, parts: Iterator[Parcel]): Rows = {
    var arrived = 0
    for (part <- parts) {
      val first = part.ids.head.asInstanceOf[LongIds].values.head.toInt
      System.arraycopy(part.values, 0, out.values, first * out.width, part.values.length)
      arrived += part.values.length
    }
    require(arrived == out.values.length, s"$arrived numbers came for ${out.count} vertices of width ${out.width}")
    out
  }
}
