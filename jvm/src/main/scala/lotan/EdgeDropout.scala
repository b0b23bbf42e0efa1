package lotan

import org.apache.spark.rdd.RDD

/** Dropout of an edge column, with the same random numbers as on every engine (`lotan/stages/randomness.py`); its own adjoint.
  *
  * @param scope
  *   the edges along which it runs
  * @param state
  *   of the operator, in this epoch: `Randomness.operator`
  * @param threshold
  *   from 0 to 65536: draws of 16 bits below it are dropped, and what is kept is scaled so that the expectation stays
  */
final case class EdgeDropout(scope: EdgeScope, state: Long, threshold: Int) {
  require(threshold >= 0 && threshold <= EdgeDropout.Levels, s"a threshold of $threshold; expected 0 to 65536")

  /** The column with some numbers zero.
    *
    * @param keys
    *   of all edges of the set: see `EdgeKeys`
    */
  def apply(blocks: RDD[Block], keys: RDD[Array[Long]], column: RDD[Rows]): RDD[Rows] =
    blocks.zipPartitions(keys, column) { (ofBlock, ofKeys, ofColumn) =>
      Iterator.single(drop(ofBlock.next(), ofKeys.next(), ofColumn.next()))
    }

  private def drop(block: Block, keys: Array[Long], column: Rows): Rows = {
    val order = scope.order(block)
    order.check(column)
    require(keys.length >= order.edges, s"${keys.length} keys of ${order.edges} edges")
    val out = scope.edgeRows(block, column.width)
    val scale = EdgeDropout.Levels.toFloat / (EdgeDropout.Levels - threshold) // infinite where nothing is kept
    var row = 0
    while (row < order.edges) {
      val state = EdgeDropout.mix(keys(row) ^ this.state)
      var draws = 0L
      var j = 0
      while (j < column.width) {
        if (j % 4 == 0) draws = EdgeDropout.mix(state + (j / 4 + 1) * EdgeDropout.Gamma)
        if ((draws >>> (16 * (j % 4)) & 0xffff) >= threshold)
          out.values(row * column.width + j) = column.values(row * column.width + j) * scale
        j += 1
      }
      row += 1
    }
    out
  }
}

private object EdgeDropout {
  val Levels: Int = 1 << 16
  val Gamma = 0x9e3779b97f4a7c15L

  /** The finaliser of splitmix64. */
  def mix(state: Long): Long = {
    val once = (state ^ (state >>> 30)) * 0xbf58476d1ce4e5b9L
    val twice = (once ^ (once >>> 27)) * 0x94d049bb133111ebL
    twice ^ (twice >>> 31)
  }
}
