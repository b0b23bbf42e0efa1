package lotan

import org.apache.spark.rdd.RDD

/** Sums along edges, each scaled by its numbers in an edge column. Forward: output[v] = sum over in-edges e = (u, v) of
  * scales[e] * input[u]. Reverse, its adjoint: over out-edges (v, u).
  *
  * A row is `heads` runs of equally many numbers, each run scaled by its own number.
  *
  * @param scope
  *   the edges along which it runs
  * @param heads
  *   width of the edge column
  */
final case class ScaledPropagate(scope: EdgeScope, heads: Int) {
  require(heads > 0, s"$heads heads; expected at least 1")

  /** Sums over in-edges. */
  def forward(blocks: RDD[Block], sources: RDD[SourceRows], scales: RDD[Rows]): RDD[Rows] =
    blocks.zipPartitions(sources, scales) { (ofBlock, ofSources, ofScales) =>
      Iterator.single(overIn(ofBlock.next(), ofSources.next(), ofScales.next()))
    }

  /** Sums over out-edges. Several tasks read `column` and `scales`: the caller persists them.
    *
    * @param width
    *   of the column
    * @param shared
    *   true if all partitions are in one JVM, so that rows need not travel
    */
  def reverse(blocks: RDD[Block], column: RDD[Rows], scales: RDD[Rows], width: Int, shared: Boolean): RDD[Rows] =
    SourceSums(scope, width)((block, rows) => new OutSums(block, rows.head, rows.last))
      .apply(blocks, Seq(column, scales), shared)

  private def overIn(block: Block, sources: SourceRows, scales: Rows): Rows = {
    val order = scope.order(block)
    check(order, sources.width, scales)
    val out = scope.vertexRows(block, sources.width)
    val sum = new HeadSum(sources.width, scales)
    for (row <- 0 until order.matrix.rows) {
      var edge = order.matrix.indptr(row)
      while (edge < order.matrix.indptr(row + 1)) {
        val source = order.matrix.columns(edge)
        sum.add(out.values, row * out.width, sources.array(source), sources.offset(source), edge)
        edge += 1
      }
      sum.flush(out.values, row * out.width)
    }
    out
  }

  final private class OutSums(block: Block, rows: Rows, scales: Rows) extends SourceSum {
    private val order = scope.order(block)
    scope.check(block, rows)
    check(order, rows.width, scales)
    private val sum = new HeadSum(rows.width, scales)

    override def addTo(out: Array[Float], from: Int, until: Int): Unit =
      for (source <- from until until) {
        var i = order.starts(source)
        while (i < order.starts(source + 1)) {
          val edge = order.bySource(i)
          sum.add(out, (source - from) * rows.width, rows.values, order.destinations(edge) * rows.width, edge)
          i += 1
        }
        sum.flush(out, (source - from) * rows.width)
      }
  }

  private def check(order: EdgeOrder, width: Int, scales: Rows): Unit = {
    order.check(scales)
    require(
      order.edges == 0 || (scales.width == heads && width % heads == 0), // the width of no rows may be unknown
      s"an edge column of width ${scales.width} and rows of width $width for $heads heads"
    )
  }

  /** Adds scaled rows to a target, a few at a time: see AddRows. */
  final private class HeadSum(width: Int, scales: Rows) {
    private val channels = width / heads
    private val arrays = new Array[Array[Float]](AddRows.AtOnce)
    private val offsets = new Array[Int](AddRows.AtOnce)
    private val places = new Array[Int](AddRows.AtOnce)
    private val runs = new Array[Int](AddRows.AtOnce)
    private val factors = new Array[Float](AddRows.AtOnce)
    private var held = 0

    /** Takes one more row for the target at `at`. All rows until `flush` must be for the same target. */
    def add(out: Array[Float], at: Int, array: Array[Float], offset: Int, edge: Int): Unit = {
      arrays(held) = array
      offsets(held) = offset
      places(held) = edge * heads
      held += 1
      if (held == AddRows.AtOnce) flush(out, at)
    }

    /** Adds the rows that were taken and not added yet. */
    def flush(out: Array[Float], at: Int): Unit = {
      var head = 0
      while (head < heads && held > 0) {
        var i = 0
        while (i < held) {
          runs(i) = offsets(i) + head * channels
          factors(i) = scales.values(places(i) + head)
          i += 1
        }
        AddRows.scaled(out, at + head * channels, arrays, runs, factors, held, channels)
        head += 1
      }
      held = 0
    }
  }
}
