package lotan

import org.apache.spark.rdd.RDD

/** Normalises an edge column over the in-edges of each vertex: exp(x - max) / (sum + Epsilon).
  *
  * @param scope
  *   the edges along which it runs
  */
final case class SegmentSoftmax(scope: EdgeScope) {

  /** The shares of every edge. */
  def apply(blocks: RDD[Block], scores: RDD[Rows]): RDD[Rows] =
    blocks.zipPartitions(scores) { (ofBlock, ofScores) =>
      Iterator.single(shares(ofBlock.next(), ofScores.next()))
    }

  private def shares(block: Block, scores: Rows): Rows = {
    val order = scope.order(block)
    order.check(scores)
    val width = scores.width
    val out = scope.edgeRows(block, width)
    for (row <- 0 until order.matrix.rows; head <- 0 until width)
      normalise(
        out.values,
        scores.values,
        order.matrix.indptr(row) * width + head,
        order.matrix.indptr(row + 1) * width,
        width
      )
    out
  }

  /** One destination and head: numbers from `from`, before `until`, `step` apart. */
  private def normalise(out: Array[Float], x: Array[Float], from: Int, until: Int, step: Int): Unit = {
    var greatest = Float.NegativeInfinity
    var i = from
    while (i < until) {
      greatest = math.max(greatest, x(i))
      i += step
    }
    var total = 0f
    i = from
    while (i < until) {
      out(i) = math.exp((x(i) - greatest).toDouble).toFloat
      total += out(i)
      i += step
    }
    i = from
    while (i < until) {
      out(i) /= total + SegmentSoftmax.Epsilon
      i += step
    }
  }
}

object SegmentSoftmax {

  /** The number that the Planner calls `SOFTMAX_EPSILON`. */
  val Epsilon = 1e-16f
}
