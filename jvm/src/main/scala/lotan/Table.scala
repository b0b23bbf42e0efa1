package lotan

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, Row, SparkSession}
import org.apache.spark.sql.types.{ArrayType, FloatType, LongType, StringType, StructField, StructType}

/** A column as a DataFrame of `id` and `values`, partitioned and sorted as the blocks are. */
object Table {
  def apply(blocks: RDD[Block], column: RDD[Rows]): DataFrame = {
    val text = blocks.map(_.ids.isInstanceOf[TextIds]).first()
    val rows = blocks.zipPartitions(column)((ofBlock, ofColumn) => table(ofBlock.next(), ofColumn.next()))
    val schema = StructType(
      Seq(
        StructField("id", if (text) StringType else LongType, nullable = false),
        StructField("values", ArrayType(FloatType, containsNull = false), nullable = false)
      )
    )
    SparkSession.active.createDataFrame(rows, schema)
  }

  private def table(block: Block, rows: Rows): Iterator[Row] = Iterator.range(0, block.count).map { row =>
    val id = block.ids match {
      case ids: LongIds => ids.values(row)
      case ids: TextIds => ids.values(row).toString
    }
    Row(id, rows.values.slice(row * rows.width, (row + 1) * rows.width).toSeq)
  }
}
