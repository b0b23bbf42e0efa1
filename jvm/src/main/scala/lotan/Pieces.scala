package lotan

import java.nio.{ByteBuffer, ByteOrder}

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, Row, SparkSession}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** What partitions have, in pieces that the driver fetches. A piece has its partition, and the place of its first vertex in
  * its block.
  */
object Pieces {

  /** A column, in records of bytes, little-endian: the partition and the first vertex as Int, and the numbers of the rows.
    *
    * Python reads such records as they are. Rows of a DataFrame would be pickled, which takes several times as long.
    *
    * @param jobs
    *   the most jobs in which a local iterator fetches them, each of which runs one task
    */
  def apply(column: RDD[Rows], jobs: Int): RDD[Array[Byte]] = column
    .mapPartitionsWithIndex { (partition, rows) =>
      rows.flatMap { all =>
        val some = math.max(1, MostNumbers / all.width)
        Iterator.range(0, all.count, some).map { first =>
          record(partition, first, all.values, first * all.width, math.min(some, all.count - first) * all.width)
        }
      }
    }
    .coalesce(jobs)

  /** The ids of all vertices in the order of their blocks: a table of `partition`, `first` and `ids`. */
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

  private def record(partition: Int, first: Int, values: Array[Float], from: Int, length: Int): Array[Byte] = {
    val out = ByteBuffer.allocate(4 * (2 + length)).order(ByteOrder.LITTLE_ENDIAN).putInt(partition).putInt(first)
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
