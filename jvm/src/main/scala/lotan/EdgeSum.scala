package lotan

import org.apache.spark.rdd.RDD

/** Sums an edge column over the in-edges of each vertex, or over its out-edges.
  *
  * @param scope
  *   the edges along which it runs
  * @param bySource
  *   over out-edges
  */
final case class EdgeSum(scope: EdgeScope, bySource: Boolean) {

  /** The sums for every vertex. Over out-edges `column` is read by several tasks: the caller persists it.
    *
    * @param width
    *   of the column
    */
  def apply(blocks: RDD[Block], column: RDD[Rows], width: Int, shared: Boolean): RDD[Rows] =
    if (bySource)
      SourceSums(scope, width)((block, rows) => new OutSums(scope.order(block), rows.head))
        .apply(blocks, Seq(column), shared)
    else
      blocks.zipPartitions(column)((ofBlock, ofColumn) => Iterator.single(inSums(ofBlock.next(), ofColumn.next())))

  private def inSums(block: Block, column: Rows): Rows = {
    val order = scope.order(block)
    order.check(column)
    val out = scope.vertexRows(block, column.width)
    EdgeSum.overInEdges(order, column, out)
    out
  }

  final private class OutSums(order: EdgeOrder, column: Rows) extends SourceSum {
    order.check(column)
    private val width = column.width

    override def addTo(out: Array[Float], from: Int, until: Int): Unit =
      for (source <- from until until) {
        var i = order.starts(source)
        while (i < order.starts(source + 1)) {
          AddRows.one(out, (source - from) * width, column.values, order.bySource(i) * width, width)
          i += 1
        }
      }
  }
}

object EdgeSum {

  /** Adds to `[vertices x width]` the sums over in-edges, in their order. */
  private[lotan] def overInEdges(order: EdgeOrder, column: Rows, out: Rows): Unit = {
    var edge = 0
    while (edge < order.edges) {
      AddRows.one(out.values, order.destinations(edge) * column.width, column.values, edge * column.width, column.width)
      edge += 1
    }
  }
}
