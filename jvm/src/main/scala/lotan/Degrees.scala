package lotan

import org.apache.spark.rdd.RDD

/** Static columns of width 1 that follow from the edges alone. */
object Degrees {

  /** Number of in-edges of each vertex, at least 1.
    *
    * @param edges
    *   which in-edges
    */
  def inDegree(blocks: RDD[Block], edges: EdgeSet = EdgeSet.Graph): RDD[Rows] = blocks.map { block =>
    val set = block.edges(edges)
    column(block.count)(row => math.max(1.0, total(set, row, weighted = false)).toFloat)
  }

  /** (Sum of the in-edges' weights)^-1/2, 0 where that is not finite: the two-sided scale of GCN.
    *
    * @param edges
    *   which in-edges
    * @param weighted
    *   false: each counts 1
    */
  def gcnScale(blocks: RDD[Block], edges: EdgeSet, weighted: Boolean): RDD[Rows] = blocks.map { block =>
    val set = block.edges(edges)
    column(block.count) { row =>
      val scale = 1.0 / math.sqrt(total(set, row, weighted))
      if (java.lang.Double.isFinite(scale)) scale.toFloat else 0f
    }
  }

  private def total(set: Edges, row: Int, weighted: Boolean): Double = {
    val csr = set.forward
    val weights = if (weighted) csr.weights else None
    var sum = 0.0
    for (edge <- csr.indptr(row) until csr.indptr(row + 1)) sum += weights.fold(1.0)(_(edge).toDouble)
    sum + set.loops.fold(0.0)(loops => if (weighted) loops(row).toDouble else 1.0)
  }

  private def column(count: Int)(value: Int => Float): Rows = new Rows(1, Array.tabulate(count)(value))
}
