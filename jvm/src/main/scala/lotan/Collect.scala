package lotan

import java.util

import org.apache.spark.rdd.RDD

/** The in-edges of a chunk: consecutive vertices of a partition, whose messages a worker computes.
  *
  * @param firstRow
  *   of the chunk's vertices, within the partition
  * @param matrix
  *   `[vertices x sources]`: its columns are positions in `sources`
  * @param sources
  *   the distinct sources in the block's numbering, ascending
  */
final class Neighbourhood(val firstRow: Int, val matrix: Csr, val sources: Array[Int]) extends Serializable

/** A neighbourhood with the rows of its sources, `[sources x width]`. */
final class Collected(val neighbourhood: Neighbourhood, val rows: Rows) extends Serializable

/** Brings to each chunk of destinations the rows at the sources of its in-edges: each distinct source once, never one per edge.
  *
  * @param edges
  *   which edges
  * @param chunkRows
  *   destinations per chunk; the last chunk of a partition may have fewer
  */
final case class Collect(edges: EdgeSet, chunkRows: Int) {
  require(chunkRows > 0, s"$chunkRows rows per chunk; expected at least 1")

  /** The chunks of every partition, in order, lazily one at a time. `column` is read twice: the caller persists it. */
  def apply(blocks: RDD[Block], column: RDD[Rows]): RDD[Collected] =
    blocks.zipPartitions(column, Exchange.halo(blocks, column)) { (ofBlock, ofColumn, ofHalo) =>
      val block = ofBlock.next()
      val own = ofColumn.next()
      val arrays = own.values +: ofHalo.next()
      neighbourhoods(block).map(near =>
        new Collected(near, pick(near.sources, arrays, 0 +: block.haloStart, own.width))
      )
    }

  /** The chunks of a block. */
  def neighbourhoods(block: Block): Iterator[Neighbourhood] = {
    val matrix = block.edges(edges).withLoops
    val positions =
      new Array[Int](block.sources) // of a source in the chunk at hand; others keep what is left of earlier ones
    Iterator.range(0, block.count, chunkRows).map(from => neighbourhood(matrix, from, positions))
  }

  private def neighbourhood(matrix: Csr, from: Int, positions: Array[Int]): Neighbourhood = {
    val until = math.min(from + chunkRows, matrix.rows)
    val first = matrix.indptr(from)
    val columns = util.Arrays.copyOfRange(matrix.columns, first, matrix.indptr(until))
    val sources = new LongIds(columns.map(_.toLong)).distinct.values.map(_.toInt)
    for (i <- sources.indices) positions(sources(i)) = i
    val indptr = Array.tabulate(until - from + 1)(row => matrix.indptr(from + row) - first)
    val weights = matrix.weights.map(util.Arrays.copyOfRange(_, first, matrix.indptr(until)))
    new Neighbourhood(from, new Csr(indptr, columns.map(positions), weights), sources)
  }

  private def pick(sources: Array[Int], arrays: Array[Array[Float]], starts: Array[Int], width: Int): Rows = {
    val picked = Rows.zeros(sources.length, width)
    var segment = 0 // sources ascend
    for (i <- sources.indices) {
      while (sources(i) >= starts(segment + 1)) segment += 1
      System.arraycopy(arrays(segment), (sources(i) - starts(segment)) * width, picked.values, i * width, width)
    }
    picked
  }
}
