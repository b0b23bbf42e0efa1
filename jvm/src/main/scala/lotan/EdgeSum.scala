package lotan

import org.apache.spark.rdd.RDD

/** Sums an edge column over the in-edges of each vertex, or over its out-edges.
  *
  * @param edges
  *   whose edges
  * @param bySource
  *   over out-edges
  */
final case class EdgeSum(edges: EdgeSet, bySource: Boolean) {

  /** The sums for every vertex. Over out-edges `column` is read by several tasks: the caller persists it.
    *
    * @param width
    *   of the column
    */
  def apply(blocks: RDD[Block], column: RDD[Rows], width: Int, shared: Boolean): RDD[Rows] =
    if (bySource)
      SourceSums(width)((block, rows, out, from, until) => add(block.edges(edges).order, rows.head, out, from, until))
        .apply(blocks, Seq(column), shared)
    else
      blocks.zipPartitions(column)((ofBlock, ofColumn) => Iterator.single(inSums(ofBlock.next(), ofColumn.next())))

  private def add(order: EdgeOrder, column: Rows, out: Array[Float], from: Int, until: Int): Unit = {
    order.check(column)
    val width = column.width
    for (source <- from until until) {
      var i = order.starts(source)
      while (i < order.starts(source + 1)) {
        AddRows.one(out, (source - from) * width, column.values, order.bySource(i) * width, width)
        i += 1
      }
    }
  }

  private def inSums(block: Block, column: Rows): Rows = {
    val order = block.edges(edges).order
    order.check(column)
    EdgeSum.overInEdges(order, column)
  }
}

object EdgeSum {

  /** `[vertices x width]`: sums over in-edges, in their order. */
  private[lotan] def overInEdges(order: EdgeOrder, column: Rows): Rows = {
    val out = Rows.zeros(order.matrix.rows, column.width)
    var edge = 0
    while (edge < order.edges) {
      AddRows.one(out.values, order.destinations(edge) * column.width, column.values, edge * column.width, column.width)
      edge += 1
    }
    out
  }
}
