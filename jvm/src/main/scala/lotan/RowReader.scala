package lotan

/** Reads rows of a partition, in the order of the block's ids. Only one thread may use it at a time. */
trait RowReader {

  /** Numbers per row. */
  def width: Int

  def count: Int

  /** Writes rows `from until until` to an array, from its beginning. The same numbers each time. */
  def read(from: Int, until: Int, into: Array[Float]): Unit
}

/** The sum of several columns, added in their order. */
final private class SummedRows(parts: Seq[RowReader]) extends RowReader {
  private var other = Array.emptyFloatArray

  override def width: Int = parts.head.width
  override def count: Int = parts.head.count

  override def read(from: Int, until: Int, into: Array[Float]): Unit = {
    val length = (until - from) * width
    if (other.length < length) other = new Array[Float](length)
    parts.head.read(from, until, into)
    for (part <- parts.tail) {
      part.read(from, until, other)
      AddRows.one(into, 0, other, 0, length)
    }
  }
}

/** Rows that are fetched when they are first read, and perhaps never. */
final private class LaterRows(fetch: () => RowReader) extends RowReader {
  private lazy val rows = fetch()

  override def width: Int = rows.width
  override def count: Int = rows.count
  override def read(from: Int, until: Int, into: Array[Float]): Unit = rows.read(from, until, into)
}
