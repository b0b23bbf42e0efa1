package lotan

import org.apache.spark.rdd.RDD

/** Reduces a column over all vertices, and gives every vertex the result.
  *
  * Each partition makes its part, in float64. The parts are merged in the order of partitions, so that a task that runs again
  * gets the same bits.
  *
  * @param kind
  *   "sum"; "mean"; "sample", the sum divided by the number of vertices less one; or "moments", the mean and the biased variance
  *   of each number, side by side
  */
final case class Total(kind: String) {
  require(Total.Kinds.contains(kind), s"there is no reduction '$kind' over all vertices; there are ${Total.Kinds}")

  /** The part of each partition. Several tasks read it: the caller persists and unpersists it. */
  def parts(blocks: RDD[Block], column: RDD[Rows]): RDD[TotalPart] =
    blocks.zipPartitions(column) { (ofBlock, ofColumn) =>
      val (block, rows) = (ofBlock.next(), ofColumn.next())
      val mean = sums(rows).map(_ / math.max(1, block.count))
      val squares = if (kind == "moments") squaresAround(mean, rows) else Array.emptyDoubleArray
      Iterator.single(new TotalPart(block.partition, block.count, mean, squares))
    }

  /** The result for every vertex, as it is read: the memory of a row for each partition. */
  def asRead(blocks: RDD[Block], parts: RDD[TotalPart], shared: Boolean): RDD[RowReader] =
    blocks.zipPartitions(everywhere(parts, shared)) { (ofBlock, ofParts) =>
      Iterator.single(new RepeatedRow(ofBlock.next().count, merged(ofParts.next())))
    }

  /** The result for every vertex, as rows. */
  def apply(blocks: RDD[Block], parts: RDD[TotalPart], shared: Boolean): RDD[Rows] =
    asRead(blocks, parts, shared).map { row =>
      val out = Rows.zeros(row.count, row.width)
      row.read(0, row.count, out.values)
      out
    }

  /** In every partition, the parts of all, in their order: by reference in one JVM, else by a shuffle. */
  private def everywhere(parts: RDD[TotalPart], shared: Boolean): RDD[Array[TotalPart]] =
    if (shared) new Everyone(parts)
    else {
      val partitions = parts.getNumPartitions
      val sent = parts.flatMap(part => Iterator.range(0, partitions).map(_ -> part))
      sent.partitionBy(Placement(partitions)).values.mapPartitions { received =>
        Iterator.single(received.toArray.sortBy(_.partition))
      }
    }

  private def sums(rows: Rows): Array[Double] = {
    val out = new Array[Double](rows.width)
    var at = 0
    while (at < rows.values.length) {
      var i = 0
      while (i < rows.width) {
        out(i) += rows.values(at + i)
        i += 1
      }
      at += rows.width
    }
    out
  }

  private def squaresAround(mean: Array[Double], rows: Rows): Array[Double] = {
    val out = new Array[Double](rows.width)
    var at = 0
    while (at < rows.values.length) {
      var i = 0
      while (i < rows.width) {
        val apart = rows.values(at + i) - mean(i)
        out(i) += apart * apart
        i += 1
      }
      at += rows.width
    }
    out
  }

  /** The row that every vertex gets. */
  private def merged(parts: Array[TotalPart]): Array[Float] = {
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
  private val Kinds = Seq("sum", "mean", "sample", "moments")
}

/** What one partition, or several, have of a reduction.
  *
  * @param partition
  *   the first partition
  * @param count
  *   vertices; rows that a column lacks count as zeros
  * @param mean
  *   `[width]`: the mean of each number
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
