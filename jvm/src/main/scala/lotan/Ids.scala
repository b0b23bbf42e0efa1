package lotan

import java.util

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.unsafe.types.UTF8String

/** Vertex ids, all of one type: longs, or strings as Spark holds them. Where a doc says sorted, they ascend and are distinct.
  *
  * Those of a block are sorted while it is loaded; `LevelOrder` has another order.
  */
sealed trait Ids extends Serializable {
  def size: Int

  /** The partition of id `i`. */
  def partition(i: Int, placement: Placement): Int

  /** The row key of id `i`: Spark SQL's `xxhash64`. */
  def key(i: Int): Long

  /** Position of `other`'s id `i` in these sorted ids, or a negative number: a binary search, for loading alone. */
  def find(other: Ids, i: Int): Int

  def select(positions: Array[Int]): Ids

  /** Ids sorted, doubles dropped. */
  def distinct: Ids

  /** Returns an id as text, for messages. */
  def show(i: Int): String
}

final class LongIds(val values: Array[Long]) extends Ids {
  override def size: Int = values.length
  override def partition(i: Int, placement: Placement): Int = placement.of(values(i))
  override def key(i: Int): Long = Placement.key(values(i))
  override def find(other: Ids, i: Int): Int = util.Arrays.binarySearch(values, other.asInstanceOf[LongIds].values(i))
  override def select(positions: Array[Int]): LongIds = new LongIds(positions.map(values))
  override def show(i: Int): String = values(i).toString

  override def distinct: LongIds = {
    val sorted = values.clone()
    util.Arrays.sort(sorted)
    var kept = 0
    var i = 0
    while (i < sorted.length) {
      if (i == 0 || sorted(i) != sorted(i - 1)) {
        sorted(kept) = sorted(i)
        kept += 1
      }
      i += 1
    }
    new LongIds(util.Arrays.copyOf(sorted, kept))
  }
}

final class TextIds(val values: Array[UTF8String]) extends Ids {
  override def size: Int = values.length
  override def partition(i: Int, placement: Placement): Int = placement.of(values(i))
  override def key(i: Int): Long = Placement.key(values(i))
  override def select(positions: Array[Int]): TextIds = new TextIds(positions.map(values))
  override def show(i: Int): String = s"'${values(i)}'"

  override def find(other: Ids, i: Int): Int =
    util.Arrays.binarySearch(values.asInstanceOf[Array[AnyRef]], other.asInstanceOf[TextIds].values(i))

  override def distinct: TextIds = {
    val found = new util.HashSet[UTF8String](util.Arrays.asList(values: _*)).toArray(Array.empty[UTF8String])
    util.Arrays.sort(found.asInstanceOf[Array[AnyRef]])
    new TextIds(found)
  }
}

/** Collects the ids of rows. */
sealed trait IdBuilder {
  def append(row: InternalRow, field: Int): Unit

  /** Returns the ids that were appended since the last call. */
  def take(): Ids
}

object Ids {

  /** A builder for a column of type `text ? string : long`. */
  def builder(text: Boolean): IdBuilder = if (text) new TextBuilder else new LongBuilder

  def concat(parts: Seq[Ids], text: Boolean): Ids =
    if (text) new TextIds(parts.flatMap(_.asInstanceOf[TextIds].values).toArray)
    else new LongIds(Array.concat(parts.map(_.asInstanceOf[LongIds].values): _*))

  private final class LongBuilder extends IdBuilder {
    private val values = Array.newBuilder[Long]
    override def append(row: InternalRow, field: Int): Unit = values += row.getLong(field)
    override def take(): Ids = {
      val ids = new LongIds(values.result())
      values.clear()
      ids
    }
  }

  private final class TextBuilder extends IdBuilder {
    private val values = ArrayBuffer.empty[UTF8String]
    // Spark reuses the row's memory for the next one.
    override def append(row: InternalRow, field: Int): Unit = values += row.getUTF8String(field).copy()
    override def take(): Ids = {
      val ids = new TextIds(values.toArray)
      values.clear()
      ids
    }
  }
}
