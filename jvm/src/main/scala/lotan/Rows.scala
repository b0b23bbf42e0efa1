package lotan

import java.util.concurrent.ConcurrentHashMap

import lotan.messenger.Floats

/** The rows of a column that are in one partition, in the order of the block's ids.
  *
  * @param width
  *   numbers per row
  * @param values
  *   `[rows x width]`, row after row
  */
final class Rows(val width: Int, val values: Array[Float]) extends RowReader with Serializable {
  require(width > 0 && values.length % width == 0, s"${values.length} numbers are no rows of width $width")

  override def count: Int = values.length / width

  private def writeReplace: AnyRef = new StoredRows(this)

  @transient private lazy val parts = new ConcurrentHashMap[(Int, Int), Floats]

  /** Rows of a column that lasts, as a tensor: the same one each time, so that it is hashed once. */
  private[lotan] def part(first: Int, rows: Int): Floats =
    parts.computeIfAbsent((first, rows), _ => new Floats(values, first * width, rows, width))

  override def read(from: Int, until: Int, into: Array[Float]): Unit =
    System.arraycopy(values, from * width, into, 0, (until - from) * width)
}

object Rows {
  private val Largest = Int.MaxValue - 8 // elements of a JVM array

  /** Rows of zeros.
    *
    * Throws IllegalArgumentException if they do not fit into one array.
    */
  def zeros(count: Int, width: Int): Rows = new Rows(width, new Array[Float](length(count, width)))

  /** Numbers in `count` rows. */
  def length(count: Int, width: Int): Int = {
    val needed = count.toLong * width
    require(
      needed <= Largest,
      s"a partition has $count rows of width $width, $needed numbers in all; an array holds $Largest: " +
        s"use at least ${(needed + Largest - 1) / Largest} times as many partitions"
    )
    needed.toInt
  }
}
