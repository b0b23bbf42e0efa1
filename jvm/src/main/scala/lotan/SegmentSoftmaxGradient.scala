package lotan

import org.apache.spark.rdd.RDD

/** The adjoint of SegmentSoftmax: softmax * (gradient - sum of softmax * gradient over the destination's in-edges).
  *
  * @param scope
  *   the edges along which it runs
  */
final case class SegmentSoftmaxGradient(scope: EdgeScope) {

  /** The gradient of every score.
    *
    * @param softmax
    *   the result of SegmentSoftmax
    * @param gradient
    *   the gradient of that result
    */
  def apply(blocks: RDD[Block], softmax: RDD[Rows], gradient: RDD[Rows]): RDD[Rows] =
    Zipped(blocks, Seq(softmax, gradient)).map { case (block, rows) =>
      pulled(block, rows.head, rows.last)
    }

  private def pulled(block: Block, softmax: Rows, gradient: Rows): Rows = {
    val order = scope.order(block)
    order.check(softmax)
    order.check(gradient)
    require(softmax.width == gradient.width, s"a gradient of width ${gradient.width} for one of ${softmax.width}")
    val width = softmax.width
    val out = scope.edgeRows(block, width)
    System.arraycopy(softmax.values, 0, out.values, 0, order.edges * width)
    EdgeFunction.Binary("mul")(out.values, gradient.values, order.edges * width)
    val sums = Rows.zeros(order.matrix.rows, width)
    EdgeSum.overInEdges(order, out, sums)
    var edge = 0
    while (edge < order.edges) {
      val mean = order.destinations(edge) * width
      val at = edge * width
      var head = 0
      while (head < width) {
        out.values(at + head) -= softmax.values(at + head) * sums.values(mean + head)
        head += 1
      }
      edge += 1
    }
    out
  }
}
