package lotan

import scala.collection.mutable

/** A sparse matrix by rows: row r has the columns `columns(indptr(r)) until columns(indptr(r + 1))`, in ascending order.
  *
  * @param indptr
  *   `[rows + 1]`
  * @param columns
  *   `[edges]`
  * @param weights
  *   `[edges]`; None for 1 each
  * @param data
  *   a row of numbers for each edge; None if edges have none, or if nobody reads them here
  */
final class Csr(
    val indptr: Array[Int],
    val columns: Array[Int],
    val weights: Option[Array[Float]],
    val data: Option[EdgeData] = None
) extends Serializable {
  def rows: Int = indptr.length - 1

  def edges: Int = columns.length

  /** The matrix with rows and columns swapped, without data; columns stay in order within a row.
    *
    * @param width
    *   how many columns this one has
    */
  def transpose(width: Int): Csr = {
    val starts = Csr.prefixSums(Csr.counts(columns, width))
    val next = starts.clone()
    val rowOf = new Array[Int](edges)
    val moved = weights.map(_ => new Array[Float](edges))
    var row = 0
    while (row < rows) {
      var edge = indptr(row)
      while (edge < indptr(row + 1)) {
        val place = next(columns(edge))
        next(columns(edge)) += 1
        rowOf(place) = row
        moved.foreach(_(place) = weights.get(edge))
        edge += 1
      }
      row += 1
    }
    new Csr(starts, rowOf, moved)
  }

  /** The first rows, without data. */
  def first(count: Int): Csr = {
    val kept = indptr(count)
    new Csr(indptr.take(count + 1), columns.take(kept), weights.map(_.take(kept)))
  }

  /** Returns the matrix without the edges on the diagonal. It is the same object if there are none. */
  def withoutDiagonal: Csr = {
    val rowOf = rowOfEach
    val kept = columns.indices.iterator.filter(edge => columns(edge) != rowOf(edge)).toArray
    if (kept.length == edges) this else picked(kept, rowOf)
  }

  /** Returns the entries of one type of edges. The data must begin with the type of each edge. */
  def ofType(number: Int): Csr = {
    if (data.isEmpty)
      throw new IllegalArgumentException(s"a step sums over the edges of type $number, but the edges have no types")
    val kept = placesByType.getOrElse(number, Array.emptyIntArray)
    val starts = new Array[Int](rows + 1)
    var (row, place) = (0, 0)
    while (row < rows) {
      while (place < kept.length && kept(place) < indptr(row + 1)) place += 1
      starts(row + 1) = place
      row += 1
    }
    new Csr(starts, kept.map(columns), weights.map(kept.map(_)), data.map(_.pick(kept)))
  }

  /** The places of the entries of each type, in their order: found for all types in one pass, at the first use. */
  @transient private lazy val placesByType: Map[Int, Array[Int]] = {
    val (values, width) = (data.get.values, data.get.width)
    val counts = mutable.LongMap.empty[Int]
    var edge = 0
    while (edge < edges) {
      val number = values(edge * width).toLong
      counts(number) = counts.getOrElse(number, 0) + 1
      edge += 1
    }
    val places = counts.mapValuesNow(new Array[Int](_))
    val filled = counts.mapValuesNow(_ => 0)
    edge = 0
    while (edge < edges) {
      val number = values(edge * width).toLong
      val at = filled(number)
      places(number)(at) = edge
      filled(number) = at + 1
      edge += 1
    }
    places.iterator.map { case (number, found) => number.toInt -> found }.toMap
  }

  /** Returns some of the entries, in their order. */
  private def picked(kept: Array[Int], rowOf: Array[Int]): Csr = {
    val indptr = Csr.prefixSums(Csr.counts(kept.map(rowOf), rows))
    new Csr(indptr, kept.map(columns), weights.map(kept.map(_)), data.map(_.pick(kept)))
  }

  /** Returns 1 for each entry on the diagonal, and 0 for each other entry. */
  def loops: EdgeData = {
    val rowOf = rowOfEach
    new EdgeData(1, Array.tabulate(edges)(edge => if (columns(edge) == rowOf(edge)) 1f else 0f))
  }

  /** Returns the matrix with a diagonal entry in each row that has none yet.
    *
    * @param diagonal
    *   `[rows]`; dropped if this matrix has no weights
    */
  def withDiagonal(diagonal: Array[Float]): Csr =
    Csr(rows, rowOfEach ++ Array.range(0, rows), columns ++ Array.range(0, rows), weights.map(_ ++ diagonal))

  /** Returns where the entries of `withDiagonal` come from, for a matrix without a diagonal: the place of an entry of this
    * matrix, or `edges + row` for the diagonal of a row.
    */
  def placesWithDiagonal: Array[Int] = {
    val found = new Array[Int](edges + rows)
    for (row <- 0 until rows) {
      val loop = (indptr(row) until indptr(row + 1)).iterator.count(columns(_) < row)
      val start = indptr(row) + row // a diagonal entry for each row above
      for (edge <- indptr(row) until indptr(row + 1)) {
        val at = edge - indptr(row)
        found(start + (if (at < loop) at else at + 1)) = edge
      }
      found(start + loop) = edges + row
    }
    found
  }

  /** Returns the matrix with the rows of another matrix after its own. */
  def above(other: Csr): Csr =
    new Csr(
      indptr ++ other.indptr.drop(1).map(_ + edges),
      columns ++ other.columns,
      weights.map(_ ++ other.weights.get)
    )

  /** The row of each entry. */
  private[lotan] def rowOfEach: Array[Int] = {
    val found = new Array[Int](edges)
    for (row <- 0 until rows) java.util.Arrays.fill(found, indptr(row), indptr(row + 1), row)
    found
  }
}

object Csr {

  /** A matrix from its entries in any order. Parallel entries stay apart, sorted by weight, then by data: the order of a sum
    * must not depend on the order in which edges arrived.
    */
  def apply(
      rowCount: Int,
      rows: Array[Int],
      columns: Array[Int],
      weights: Option[Array[Float]],
      data: Option[EdgeData] = None
  ): Csr = data.fold(withoutData(rowCount, rows, columns, weights))(withData(rowCount, rows, columns, weights, _))

  private def withData(
      rowCount: Int,
      rows: Array[Int],
      columns: Array[Int],
      weights: Option[Array[Float]],
      data: EdgeData
  ): Csr = {
    val indptr = prefixSums(counts(rows, rowCount))
    val next = indptr.clone()
    val entries =
      new Array[Long](rows.length) // column in the upper half, the entry's place among those given in the lower
    for (i <- rows.indices) {
      entries(next(rows(i))) = columns(i).toLong << 32 | i
      next(rows(i)) += 1
    }
    for (row <- 0 until rowCount) java.util.Arrays.sort(entries, indptr(row), indptr(row + 1))
    val order = entries.map(_.toInt)
    for (row <- 0 until rowCount) sortParallel(order, indptr(row), indptr(row + 1), columns, weights, data)
    new Csr(indptr, order.map(columns(_)), weights.map(all => order.map(all(_))), Some(data.pick(order)))
  }

  /** Sorts the runs of entries `from until until` that have the same column by weight, then by data. */
  private def sortParallel(
      order: Array[Int],
      from: Int,
      until: Int,
      columns: Array[Int],
      weights: Option[Array[Float]],
      data: EdgeData
  ): Unit = {
    var first = from
    while (first < until) {
      var end = first + 1
      while (end < until && columns(order(end)) == columns(order(first))) end += 1
      if (end - first > 1) {
        val run = order.slice(first, end).sortWith { (one, other) =>
          val byWeight = weights.fold(0)(all => java.lang.Float.compare(all(one), all(other)))
          (if (byWeight != 0) byWeight else data.compare(one, other)) < 0
        }
        System.arraycopy(run, 0, order, first, run.length)
      }
      first = end
    }
  }

  private def withoutData(rowCount: Int, rows: Array[Int], columns: Array[Int], weights: Option[Array[Float]]): Csr = {
    val indptr = prefixSums(counts(rows, rowCount))
    val next = indptr.clone()
    val entries = new Array[Long](rows.length) // column in the upper half, weight in the lower
    var i = 0
    while (i < rows.length) {
      val bits = weights.fold(0)(all => sortable(all(i)))
      entries(next(rows(i))) = columns(i).toLong << 32 | (bits.toLong & 0xffffffffL)
      next(rows(i)) += 1
      i += 1
    }
    var row = 0
    while (row < rowCount) {
      java.util.Arrays.sort(entries, indptr(row), indptr(row + 1))
      row += 1
    }
    new Csr(indptr, entries.map(e => (e >>> 32).toInt), weights.map(_ => entries.map(e => fromSortable(e.toInt))))
  }

  /** Counts how often each of `0 until size` occurs. */
  def counts(values: Array[Int], size: Int): Array[Int] = {
    val found = new Array[Int](size)
    values.foreach(found(_) += 1)
    found
  }

  def prefixSums(counts: Array[Int]): Array[Int] = counts.scanLeft(0)(_ + _)

  /** Returns the end of the rows `from until until` without empty rows at the end. */
  def end(indptr: Array[Int], from: Int, until: Int): Int = {
    var end = until
    while (end > from && indptr(end) == indptr(end - 1)) end -= 1
    end
  }

  // A float's bits as an unsigned integer of the same order: Arrays.sort compares the lower halves of positive longs so.
  private def sortable(value: Float): Int = {
    val bits = java.lang.Float.floatToRawIntBits(value)
    if (bits < 0) ~bits else bits ^ Int.MinValue
  }

  private def fromSortable(bits: Int): Float =
    java.lang.Float.intBitsToFloat(if (bits < 0) bits ^ Int.MinValue else ~bits)
}
