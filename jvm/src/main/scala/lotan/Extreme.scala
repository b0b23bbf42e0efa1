package lotan

import org.apache.spark.rdd.RDD

/** The greatest or least of the sources' rows over the in-edges of each vertex, number by number; 0 without in-edges.
  *
  * @param scope
  *   the edges along which it runs
  * @param greatest
  *   the maximum, else the minimum
  */
final case class Extreme(scope: EdgeScope, greatest: Boolean) {

  /** The extremes for every vertex. */
  def apply(blocks: RDD[Block], sources: RDD[SourceRows]): RDD[Rows] =
    blocks.zipPartitions(sources) { (ofBlock, ofSources) =>
      Iterator.single(extremes(ofBlock.next(), ofSources.next()))
    }

  private def extremes(block: Block, sources: SourceRows): Rows = {
    val matrix = scope.order(block).matrix
    val width = sources.width
    val out = scope.vertexRows(block, width)
    for (row <- 0 until matrix.rows; edge <- matrix.indptr(row) until matrix.indptr(row + 1)) {
      val source = matrix.columns(edge)
      if (edge == matrix.indptr(row))
        System.arraycopy(sources.array(source), sources.offset(source), out.values, row * width, width)
      else merge(out.values, row * width, sources.array(source), sources.offset(source), width)
    }
    out
  }

  private def merge(out: Array[Float], at: Int, row: Array[Float], from: Int, width: Int): Unit = {
    var j = 0
    if (greatest)
      while (j < width) {
        out(at + j) = math.max(out(at + j), row(from + j))
        j += 1
      }
    else
      while (j < width) {
        out(at + j) = math.min(out(at + j), row(from + j))
        j += 1
      }
  }
}
