package lotan

import org.apache.spark.rdd.RDD

/** The adjoint of Extreme: each gradient goes to the sources that have the extreme, in equal shares.
  *
  * Shares are computed where the edges end, and brought to the sources' owners: one row for each halo vertex, in one shuffle.
  *
  * @param edges
  *   which edges
  */
final case class ExtremeGradient(edges: EdgeSet) {

  /** The gradient of every vertex's row. The caller persists `column`.
    *
    * @param column
    *   what Extreme was given
    * @param extreme
    *   what it returned
    * @param gradient
    *   of that
    */
  def apply(
      blocks: RDD[Block],
      column: RDD[Rows],
      extreme: RDD[Rows],
      gradient: RDD[Rows],
      width: Int,
      shared: Boolean
  ): RDD[Rows] = {
    val zipped = Zipped(blocks, Seq(extreme, gradient))
    val partial = zipped.zipPartitions(SourceRows(blocks, column, shared)) { (ofBlock, ofSources) =>
      val (block, rows) = ofBlock.next()
      Iterator.single(sums(block, ofSources.next(), rows.head, rows.last))
    }
    blocks.zipPartitions(Exchange.partials(blocks, partial)) { (ofBlock, received) =>
      val block = ofBlock.next()
      val out = Rows.zeros(block.count, width)
      Propagate.addPartials(out, block, received.next())
      Iterator.single(out)
    }
  }

  /** By owner; those for the block's own vertices at its own place. Nulls where there is nothing. */
  private def sums(block: Block, sources: SourceRows, extreme: Rows, gradient: Rows): Array[Rows] = {
    for (rows <- Seq(extreme, gradient)) Propagate.check(block, rows)
    val (matrix, width) = (block.edges(edges).order.matrix, sources.width)
    val out = Array.tabulate(block.partitions) { owner =>
      val count = if (owner == block.partition) block.count else block.haloStart(owner + 1) - block.haloStart(owner)
      if (count == 0) null else Rows.zeros(count, width)
    }
    val share = new Array[Float](width)
    for (row <- 0 until block.count) {
      val run = matrix.indptr(row) until matrix.indptr(row + 1)
      val winners = new Array[Int](width)
      for (edge <- run) forWinners(matrix.columns(edge), sources, extreme, row, width)(winners(_) += 1)
      for (j <- 0 until width) share(j) = gradient.values(row * width + j) / math.max(winners(j), 1)
      for (edge <- run) {
        val source = matrix.columns(edge)
        val owner = sources.owner(source)
        val first = if (owner == block.partition) 0 else block.haloStart(owner)
        val at = (source - first) * width
        forWinners(source, sources, extreme, row, width)(j => out(owner).values(at + j) += share(j))
      }
    }
    out
  }

  private def forWinners(source: Int, sources: SourceRows, extreme: Rows, row: Int, width: Int)(
      use: Int => Unit
  ): Unit = {
    val array = sources.array(source)
    val from = sources.offset(source)
    var j = 0
    while (j < width) {
      if (array(from + j) == extreme.values(row * width + j)) use(j)
      j += 1
    }
  }
}
