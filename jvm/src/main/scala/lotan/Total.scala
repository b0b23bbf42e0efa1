package lotan

import org.apache.spark.rdd.RDD

/** Reduces a column over all vertices, and gives every vertex the result.
  *
  * Each partition makes its part, in float64. The parts are merged in the order of partitions, so that a task that runs again
  * gets the same bits.
  *
  * @param kind
  *   "sum"; "mean"; "sample", the sum divided by the number of vertices less one; or "moments", the mean and the biased variance
  *   of each number, side by side; or "max", the greatest of each number, of which rows that the column lacks are no part
  */
final case class Total(kind: String) {
  require(Total.Kinds.contains(kind), s"there is no reduction '$kind' over all vertices; there are ${Total.Kinds}")

  private val squared = kind == "moments"

  /** The part of each partition. Several tasks read it: the caller persists and unpersists it.
    *
    * @param scale
    *   a number for each vertex, by which its row is multiplied first
    */
  def parts(blocks: RDD[Block], column: RDD[Rows], scale: Option[RDD[Rows]] = None): RDD[TotalPart] = scale match {
    case None => blocks.zipPartitions(column)((ofBlock, of) => Iterator.single(part(ofBlock.next(), of.next(), None)))
    case Some(scales) =>
      blocks.zipPartitions(column, scales) { (ofBlock, of, by) =>
        Iterator.single(part(ofBlock.next(), of.next(), Some(by.next().values)))
      }
  }

  private def part(block: Block, rows: Rows, scale: Option[Array[Float]]): TotalPart =
    if (kind == "max") new TotalPart(block.partition, block.count, Total.greatest(rows), Array.emptyDoubleArray)
    else summed(block, rows, scale)

  private def summed(block: Block, rows: Rows, scale: Option[Array[Float]]): TotalPart = {
    val near = Total.near(rows, scale)
    val (apart, squares) = sums(rows, near, scale)
    val zeros = (block.count - rows.count).toDouble // rows that the column lacks
    val count = math.max(1, block.count).toDouble
    val (mean, around) = (new Array[Double](rows.width), new Array[Double](if (squared) rows.width else 0))
    var i = 0
    while (i < rows.width) {
      val all = apart(i) - zeros * near(i)
      mean(i) = near(i) + all / count
      if (squared) around(i) = math.max(0.0, squares(i) + zeros * near(i) * near(i) - all * all / count)
      i += 1
    }
    new TotalPart(block.partition, block.count, mean, around)
  }

  /** Sums of the distances from a row, and of their squares: the row keeps the digits of a small variance. */
  private def sums(rows: Rows, near: Array[Float], scale: Option[Array[Float]]): (Array[Double], Array[Double]) = {
    val width = rows.width
    val (apart, squares) = (new Array[Double](width), new Array[Double](width))
    val (ofPiece, ofSquares) = (new Array[Float](width), new Array[Float](width))
    var row = 0
    while (row < rows.count) {
      val until = math.min(rows.count, row + Total.Piece)
      while (row < until) {
        val factor = scale.fold(1f)(_(row))
        if (squared) Total.addBoth(ofPiece, ofSquares, rows.values, row * width, near, factor, width)
        else Total.add(ofPiece, rows.values, row * width, near, factor, width)
        row += 1
      }
      Total.drain(ofPiece, apart)
      Total.drain(ofSquares, squares)
    }
    (apart, squares)
  }

  /** The result for every vertex, as it is read: the memory of a row for each partition. */
  def asRead(blocks: RDD[Block], parts: RDD[TotalPart], shared: Boolean): RDD[RowReader] =
    blocks.zipPartitions(Total.everywhere(parts, shared)) { (ofBlock, ofParts) =>
      Iterator.single(new RepeatedRow(ofBlock.next().count, merged(ofParts.next())))
    }

  /** The result for every vertex, as rows. */
  def apply(blocks: RDD[Block], parts: RDD[TotalPart], shared: Boolean): RDD[Rows] =
    asRead(blocks, parts, shared).map { row =>
      val out = Rows.zeros(row.count, row.width)
      row.read(0, row.count, out.values)
      out
    }

  /** The row that every vertex gets. */
  private def merged(parts: Array[TotalPart]): Array[Float] =
    if (kind == "max") parts.map(_.mean).reduceLeft(Total.greater).map(_.toFloat) else summed(parts)

  private def summed(parts: Array[TotalPart]): Array[Float] = {
    val all = parts.reduceLeft(_ + _)
    kind match {
      case "sum" => all.mean.map(mean => (mean * all.count).toFloat)
      case "mean" => all.mean.map(_.toFloat)
      case "sample" => all.mean.map(mean => (mean * all.count / (all.count - 1)).toFloat)
      case _ =>
        all.mean.zip(all.squares).flatMap { case (mean, squares) => Array(mean.toFloat, (squares / all.count).toFloat) }
    }
  }
}

object Total {
  private val Kinds = Seq("sum", "mean", "sample", "moments", "max")
  private val Piece = 256 // rows that are summed in float; sums of pieces are added in double
  private val Sampled = 64 // rows whose mean is the row near the mean

  private type Floats = Array[Float]

  /** In every partition, the parts of all, in their order: by reference in one JVM, else by a shuffle. */
  private[lotan] def everywhere(parts: RDD[TotalPart], shared: Boolean): RDD[Array[TotalPart]] =
    if (shared) new Everyone(parts)
    else {
      val partitions = parts.getNumPartitions
      val sent = parts.flatMap(part => Iterator.range(0, partitions).map(_ -> part))
      sent.partitionBy(Placement(partitions)).values.mapPartitions { received =>
        Iterator.single(received.toArray.sortBy(_.partition))
      }
    }

  /** The greatest of each number of some rows; negative infinity where there are none. */
  private def greatest(rows: Rows): Array[Double] = {
    val out = Array.fill(rows.width)(Double.NegativeInfinity)
    var at = 0
    while (at < rows.count * rows.width) {
      val i = at % rows.width
      out(i) = math.max(out(i), rows.values(at).toDouble)
      at += 1
    }
    out
  }

  private def greater(one: Array[Double], other: Array[Double]): Array[Double] =
    one.indices.map(i => math.max(one(i), other(i))).toArray

  /** A row near the mean of some rows: the mean of a few of them. */
  private def near(rows: Rows, scale: Option[Floats]): Floats = {
    val out = new Array[Float](rows.width)
    val step = math.max(1, rows.count / Sampled)
    val taken = Range(0, rows.count, step)
    for (row <- taken) AddRows.oneScaled(out, 0, rows.values, row * rows.width, scale.fold(1f)(_(row)), rows.width)
    out.map(_ / math.max(1, taken.length))
  }

  // The JIT compiler makes vector instructions of these loops: see `AddRows`.

  private def add(out: Floats, rows: Floats, at: Int, near: Floats, factor: Float, width: Int): Unit = {
    var i = 0
    while (i < width) {
      out(i) += factor * rows(at + i) - near(i)
      i += 1
    }
  }

  private def addBoth(
      out: Floats,
      squares: Floats,
      rows: Floats,
      at: Int,
      near: Floats,
      factor: Float,
      width: Int
  ): Unit = {
    var i = 0
    while (i < width) {
      val apart = factor * rows(at + i) - near(i)
      out(i) += apart
      squares(i) += apart * apart
      i += 1
    }
  }

  private def drain(from: Floats, into: Array[Double]): Unit = {
    var i = 0
    while (i < from.length) {
      into(i) += from(i)
      from(i) = 0f
      i += 1
    }
  }
}

/** What one partition, or several, have of a reduction.
  *
  * @param partition
  *   the first partition
  * @param count
  *   vertices; rows that a column lacks count as zeros
  * @param mean
  *   `[width]`: the mean of each number, or for "max" the greatest
  * @param squares
  *   `[width]`: the sum of the squares of each number's distances from the mean; empty where nobody asks for it
  */
final class TotalPart(val partition: Int, val count: Long, val mean: Array[Double], val squares: Array[Double])
    extends Serializable {

  /** This part and the next (Chan, Golub and LeVeque 1979). */
  def +(next: TotalPart): TotalPart = {
    val all = count + next.count
    if (next.count == 0) this
    else if (count == 0) new TotalPart(partition, next.count, next.mean, next.squares)
    else {
      val apart = mean.indices.map(i => next.mean(i) - mean(i))
      val share = next.count.toDouble / all
      val together = squares.indices.map(i => squares(i) + next.squares(i) + apart(i) * apart(i) * count * share)
      new TotalPart(partition, all, mean.indices.map(i => mean(i) + apart(i) * share).toArray, together.toArray)
    }
  }
}

/** The same row again and again. */
final private class RepeatedRow(override val count: Int, row: Array[Float]) extends RowReader with Serializable {
  override def width: Int = row.length

  override def read(from: Int, until: Int, into: Array[Float]): Unit = {
    var at = 0
    while (at < (until - from) * width) {
      System.arraycopy(row, 0, into, at, width)
      at += width
    }
  }
}
