package lotan

import java.nio.{ByteBuffer, ByteOrder}

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, Row, SparkSession}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** What partitions have, in pieces that the driver fetches: a table of `partition`; of `first`, the place of a piece's first
  * vertex in its block; and of the piece itself.
  */
object Pieces {

  /** A column, with the numbers of a piece's rows as bytes, little-endian, in `values`. */
  def apply(column: RDD[Rows]): DataFrame = {
    val pieces = column.mapPartitionsWithIndex { (partition, rows) =>
      rows.flatMap { all =>
        val some = math.max(1, MostNumbers / all.width)
        Iterator.range(0, all.count, some).map { first =>
          Row(partition, first, bytes(all.values, first * all.width, math.min(some, all.count - first) * all.width))
        }
      }
    }
    table(pieces, StructField("values", BinaryType, nullable = false))
  }

  /** The ids of all vertices in the order of their blocks, in `ids`. */
  def ids(blocks: RDD[Block]): DataFrame = {
    val text = blocks.map(_.ids.isInstanceOf[TextIds]).first()
    val pieces = blocks.flatMap { block =>
      Iterator.range(0, block.count, MostIds).map { first =>
        Row(block.partition, first, plain(block.ids.select(Array.range(first, math.min(first + MostIds, block.count)))))
      }
    }
    table(pieces, StructField("ids", ArrayType(if (text) StringType else LongType, containsNull = false)))
  }

  private val MostNumbers = 1 << 20 // of a piece: 4 MiB
  private val MostIds = 1 << 16 // of a piece

  private def table(pieces: RDD[Row], piece: StructField): DataFrame = {
    val place = Seq("partition", "first").map(StructField(_, IntegerType, nullable = false))
    SparkSession.active.createDataFrame(pieces, StructType(place :+ piece))
  }

  private def plain(ids: Ids): Seq[Any] = ids match {
    case longs: LongIds => longs.values.toSeq
    case texts: TextIds => texts.values.toSeq.map((id: UTF8String) => id.toString)
  }

  private def bytes(values: Array[Float], from: Int, length: Int): Array[Byte] = {
    val out = ByteBuffer.allocate(4 * length).order(ByteOrder.LITTLE_ENDIAN)
    val _ = out.asFloatBuffer.put(values, from, length)
    out.array
  }

  /** The numbers of a piece. */
  private[lotan] def numbers(bytes: Array[Byte]): Array[Float] = {
    val out = new Array[Float](bytes.length / 4)
    val _ = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer.get(out)
    out
  }
}
