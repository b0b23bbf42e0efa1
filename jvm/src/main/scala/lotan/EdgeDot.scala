package lotan

import org.apache.spark.rdd.RDD

/** The dot products of both ends' rows, one for each edge and head: the gradient of ScaledPropagate's scales.
  *
  * @param scope
  *   the edges along which it runs
  * @param heads
  *   of a row: runs of equally many numbers
  */
final case class EdgeDot(scope: EdgeScope, heads: Int) {
  require(heads > 0, s"$heads heads; expected at least 1")

  /** `[edges x heads]`. */
  def apply(blocks: RDD[Block], sources: RDD[SourceRows], destination: RDD[Rows]): RDD[Rows] =
    blocks.zipPartitions(sources, destination) { (ofBlock, ofSources, ofRows) =>
      Iterator.single(dots(ofBlock.next(), ofSources.next(), ofRows.next()))
    }

  private def dots(block: Block, sources: SourceRows, rows: Rows): Rows = {
    val order = scope.order(block)
    scope.check(block, rows)
    require(
      order.edges == 0 || (sources.width == rows.width && rows.width % heads == 0), // the width of no rows may be unknown
      s"rows of width ${sources.width} and ${rows.width} for $heads heads"
    )
    val channels = rows.width / heads
    val out = scope.edgeRows(block, heads)
    var edge = 0
    while (edge < order.edges) {
      val source = order.matrix.columns(edge)
      val array = sources.array(source)
      val from = sources.offset(source)
      val at = order.destinations(edge) * rows.width
      var head = 0
      while (head < heads) {
        out.values(edge * heads + head) =
          EdgeDot.dot(array, from + head * channels, rows.values, at + head * channels, channels)
        head += 1
      }
      edge += 1
    }
    out
  }
}

private object EdgeDot {

  /** Eight sums side by side: the JIT compiler may not reorder one sum, but turns eight into vector instructions. */
  def dot(a: Array[Float], ao: Int, b: Array[Float], bo: Int, count: Int): Float = {
    var s0, s1, s2, s3, s4, s5, s6, s7 = 0f
    var j = 0
    while (j + 8 <= count) {
      s0 += a(ao + j) * b(bo + j)
      s1 += a(ao + j + 1) * b(bo + j + 1)
      s2 += a(ao + j + 2) * b(bo + j + 2)
      s3 += a(ao + j + 3) * b(bo + j + 3)
      s4 += a(ao + j + 4) * b(bo + j + 4)
      s5 += a(ao + j + 5) * b(bo + j + 5)
      s6 += a(ao + j + 6) * b(bo + j + 6)
      s7 += a(ao + j + 7) * b(bo + j + 7)
      j += 8
    }
    while (j < count) {
      s0 += a(ao + j) * b(bo + j)
      j += 1
    }
    ((s0 + s4) + (s1 + s5)) + ((s2 + s6) + (s3 + s7))
  }
}
