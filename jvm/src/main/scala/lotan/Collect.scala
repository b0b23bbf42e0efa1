package lotan

import java.util

import org.apache.spark.rdd.RDD

/** The in-edges of a chunk: consecutive vertices of a partition, whose messages a worker computes.
  *
  * @param firstRow
  *   the chunk's first vertex in the partition
  * @param matrix
  *   `[vertices x sources]`: its columns are positions in `sources`
  * @param sources
  *   the distinct sources in the block's numbering, ascending
  * @param keys
  *   row keys of the edges; empty where nothing draws on them
  * @param columns
  *   the columns of the edges that stages read
  */
final class Neighbourhood(
    val firstRow: Int,
    val matrix: Csr,
    val sources: Array[Int],
    val keys: Array[Long],
    val columns: Map[String, EdgeData] = Map.empty
) extends Serializable

/** Finds the sources that each chunk of destinations needs: each distinct source once, never one for each edge.
  *
  * The rows themselves are picked from own and halo rows as they are sent: see `Pipe`.
  *
  * @param edges
  *   the edge set
  * @param chunkRows
  *   destinations per chunk; the last chunk of a partition may have fewer
  * @param keyed
  *   whether random numbers are drawn on the edges
  * @param within
  *   level up to which vertices are in chunks
  * @param columns
  *   the columns of the edges that stages read
  * @param typed
  *   true if the edges' data begins with their types
  */
final case class Collect(
    edges: EdgeSet,
    chunkRows: Int,
    keyed: Boolean = false,
    within: Int = Block.All,
    columns: Seq[EdgeColumn] = Nil,
    typed: Boolean = false
) {
  require(chunkRows > 0, s"$chunkRows rows per chunk; expected at least 1")

  /** The chunks of every partition, in order. They follow from the graph alone: the caller persists and unpersists them. */
  def apply(blocks: RDD[Block]): RDD[Array[Neighbourhood]] = blocks.map(neighbourhoods(_).toArray)

  /** The chunks of a block. */
  def neighbourhoods(block: Block): Iterator[Neighbourhood] = {
    val matrix = block.edges(edges).withLoops
    val data = columns.map(column => column.name -> block.columnOf(edges, column, typed)).toMap
    val keys = if (keyed) EdgeKeys(edges).of(block) else Array.empty[Long]
    val positions =
      new Array[Int](block.sources) // of a source in the chunk at hand; others keep what is left of earlier ones
    val count = block.rows(within)
    Iterator.range(0, count, chunkRows).map { from =>
      neighbourhood(matrix, keys, data, from, math.min(from + chunkRows, count), positions)
    }
  }

  private def neighbourhood(
      matrix: Csr,
      keys: Array[Long],
      data: Map[String, EdgeData],
      from: Int,
      until: Int,
      positions: Array[Int]
  ): Neighbourhood = {
    val first = matrix.indptr(from)
    val columns = util.Arrays.copyOfRange(matrix.columns, first, matrix.indptr(until))
    val sources = new LongIds(columns.map(_.toLong)).distinct.values.map(_.toInt)
    for (i <- sources.indices) positions(sources(i)) = i
    val indptr = Array.tabulate(until - from + 1)(row => matrix.indptr(from + row) - first)
    val weights = matrix.weights.map(util.Arrays.copyOfRange(_, first, matrix.indptr(until)))
    val own = if (keyed) util.Arrays.copyOfRange(keys, first, matrix.indptr(until)) else keys
    val ofEdges = data.map { case (name, values) => name -> values.slice(first, matrix.indptr(until)) }
    new Neighbourhood(from, new Csr(indptr, columns.map(positions), weights), sources, own, ofEdges)
  }
}
