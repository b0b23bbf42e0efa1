package lotan

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow

/** Sorts rows of a table into parcels by target partition; a parcel leaves when it is full, so memory is bounded.
  *
  * @param rows
  *   of one input partition; each is used before the next is asked for
  * @param partitions
  *   targets
  * @param bucket
  *   makes an empty bucket
  */
abstract private class Packing(rows: Iterator[InternalRow], partitions: Int, bucket: => Bucket)
    extends Iterator[(Int, Parcel)] {
  private val sender = TaskContext.getPartitionId()
  private val buckets = Array.fill(partitions)(bucket)
  private val rest = Iterator.range(0, partitions).filter(buckets(_).size > 0)
  private val most = math.max(Packing.LeastBytes, Packing.TaskBytes / partitions)
  private var full = -1

  protected def target(row: InternalRow): Int

  override def hasNext: Boolean = {
    while (full < 0 && rows.hasNext) {
      val row = rows.next()
      val to = target(row)
      buckets(to).append(row)
      if (buckets(to).size == Packing.ParcelRows || buckets(to).bytes >= most) full = to
    }
    full >= 0 || rest.hasNext
  }

  override def next(): (Int, Parcel) = {
    if (!hasNext) throw new NoSuchElementException("no more parcels")
    val to = if (full >= 0) full else rest.next()
    full = -1
    to -> buckets(to).take(sender)
  }
}

private object Packing {
  val ParcelRows = 4096
  val TaskBytes = 16 << 20 // in the buckets of a task, which take up to twice as much while they grow
  val LeastBytes = 4 << 10
}

/** Rows on their way to one partition. */
sealed abstract private class Bucket {
  private var rows = 0

  def size: Int = rows

  /** About what its rows take. */
  def bytes: Long = rows * (16L + 4 * numbers)

  def append(row: InternalRow): Unit = {
    rows += 1
    add(row)
  }

  def take(sender: Int): Parcel = {
    rows = 0
    parcel(sender)
  }

  /** The numbers of a row, without ids, as far as rows have shown. */
  protected def numbers: Int
  protected def add(row: InternalRow): Unit
  protected def parcel(sender: Int): Parcel
}

/** Ids and the numbers of all columns. A row is [id, column, column, ...]; the parcel's rows are the columns side by side.
  *
  * @param arrays
  *   for each column, whether it is an array
  */
final private class VertexBucket(text: Boolean, arrays: Seq[Boolean]) extends Bucket {
  private val ids = Ids.builder(text)
  private val values = Array.newBuilder[Float]
  private var widths: Array[Int] = _
  private var width = 0 // their sum

  override protected def numbers: Int = width

  override protected def add(row: InternalRow): Unit = {
    require(!row.isNullAt(0), "a vertex has no id")
    ids.append(row, 0)
    val found = arrays.indices.toArray.map(column => addColumn(row, column))
    if (widths == null) {
      widths = found
      width = found.sum
    }
    require(
      widths.sameElements(found),
      s"a vertex has columns of widths ${found.mkString(", ")}; others have ${widths.mkString(", ")}"
    )
  }

  private def addColumn(row: InternalRow, column: Int): Int = {
    require(!row.isNullAt(column + 1), s"a vertex has null in column ${column + 1} of those to load")
    if (arrays(column)) {
      val numbers = row.getArray(column + 1).toFloatArray()
      values ++= numbers
      numbers.length
    } else {
      values += row.getFloat(column + 1)
      1
    }
  }

  // The widths travel as the second "ids", for a receiver cannot tell them from the sum.
  override protected def parcel(sender: Int): Parcel = {
    val numbers = values.result()
    values.clear()
    new Parcel(sender, Seq(ids.take(), new LongIds(widths.map(_.toLong))), math.max(1, width), numbers)
  }
}

/** Sources, destinations, and of each edge the weight and the data, if there are any. A row is [src, dst, weight, data]. */
final private class EdgeBucket(text: Boolean, weighted: Boolean, hasData: Boolean) extends Bucket {
  private val sources = Ids.builder(text)
  private val destinations = Ids.builder(text)
  private val values = Array.newBuilder[Float]
  private var width = -1

  override protected def numbers: Int = math.max(0, width)

  override protected def add(row: InternalRow): Unit = {
    require(!row.isNullAt(0) && !row.isNullAt(1), "an edge has no src or no dst")
    sources.append(row, 0)
    destinations.append(row, 1)
    if (weighted) values += row.getFloat(2)
    val found = (if (weighted) 1 else 0) + (if (hasData) addData(row, if (weighted) 3 else 2) else 0)
    if (width < 0) width = found
    require(width == found, s"an edge has $found numbers; others have $width")
  }

  private def addData(row: InternalRow, column: Int): Int = {
    require(!row.isNullAt(column), "an edge has null as its data")
    val numbers = row.getArray(column).toFloatArray()
    values ++= numbers
    numbers.length
  }

  override protected def parcel(sender: Int): Parcel = {
    val numbers = values.result()
    values.clear()
    new Parcel(sender, Seq(sources.take(), destinations.take()), math.max(1, width), numbers)
  }
}
