package lotan

/** The rows of a column that are in one partition, in the order of the block's ids.
  *
  * @param width
  *   numbers per row
  * @param values
  *   `[rows x width]`, row after row
  */
final class Rows(val width: Int, val values: Array[Float]) extends Serializable {
  require(width > 0 && values.length % width == 0, s"${values.length} numbers are no rows of width $width")

  def count: Int = values.length / width
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
