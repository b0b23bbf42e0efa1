package lotan

/** The edges of one set that end in one partition, or in its first vertices, one after the other: the rows of an edge column,
  * which is a `Rows` too.
  *
  * Edges are ordered by destination, then by source in the block's numbering, then by weight; a self-loop that is beside the
  * edges of its set has its place among them.
  *
  * @param matrix
  *   `[destinations x sources]`: the edges, with their sources as columns
  * @param sources
  *   how many there are
  * @param most
  *   edges of the set that end in the partition: a column may have rows for more than these edges, and they are its first
  */
final class EdgeOrder(val matrix: Csr, sources: Int, most: Int) {
  def edges: Int = matrix.edges

  /** `[edges]`: the row of each edge's destination. */
  val destinations: Array[Int] = matrix.rowOfEach

  /** `[sources + 1]`: where the edges of each source begin in `bySource`. */
  val starts: Array[Int] = Csr.prefixSums(Csr.counts(matrix.columns, sources))

  /** `[edges]`: the edges by source, then in their own order. Sums over out-edges run in this order. */
  val bySource: Array[Int] = {
    val next = starts.clone()
    val order = new Array[Int](edges)
    for (edge <- 0 until edges) {
      order(next(matrix.columns(edge))) = edge
      next(matrix.columns(edge)) += 1
    }
    order
  }

  /** Sources without those at the end that no edge begins at: what lies far off comes last. */
  def used(sources: Range): Range = sources.start until Csr.end(starts, sources.start, sources.end)

  /** Throws IllegalArgumentException if the rows are not those of the edges, or of these and more. */
  def check(column: Rows): Unit = require(
    column.count >= edges && column.count <= most,
    s"an edge column has ${column.count} rows in a partition of $edges edges"
  )
}
