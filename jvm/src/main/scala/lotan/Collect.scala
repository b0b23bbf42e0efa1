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
  * @param haloStart
  *   of the block: where the sources of each owner begin
  * @param columns
  *   the columns of the edges that stages read
  */
final class Neighbourhood(
    val firstRow: Int,
    val matrix: Csr,
    val sources: Array[Int],
    val keys: Array[Long],
    val haloStart: Array[Int],
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
  * @param layout
  *   what the edges' data holds
  */
final case class Collect(
    edges: EdgeSet,
    chunkRows: Int,
    keyed: Boolean = false,
    within: Int = Block.All,
    columns: Seq[EdgeColumn] = Nil,
    layout: EdgeLayout = EdgeLayout()
) {
  require(chunkRows > 0, s"$chunkRows rows per chunk; expected at least 1")

  /** The chunks of every partition, in order. They follow from the graph alone: the caller persists and unpersists them. */
  def apply(graph: LoadedGraph): RDD[Array[Neighbourhood]] = {
    val (blocks, original) = (graph.along(edges), graph.blocks)
    if (blocks eq original) apply(blocks)
    else
      blocks.zipPartitions(original)((own, other) => Iterator.single(neighbourhoods(own.next(), other.next()).toArray))
  }

  /** The chunks of every partition along the graph's edges as they are. */
  def apply(blocks: RDD[Block]): RDD[Array[Neighbourhood]] = blocks.map(block => neighbourhoods(block, block).toArray)

  /** The chunks of a block; `original` is the block of its vertices with the graph's edges as they are. */
  def neighbourhoods(block: Block, original: Block): Iterator[Neighbourhood] = {
    val matrix = block.edges(edges).withLoops
    val data = columns.map(column => column.name -> block.columnOf(edges, column, layout, original)).toMap
    val keys = if (keyed) EdgeKeys(edges).of(block) else Array.empty[Long]
    val positions =
      new Array[Int](block.sources) // of a source in the chunk at hand; others keep what is left of earlier ones
    val count = block.rows(within)
    Iterator.range(0, count, chunkRows).map { from =>
      neighbourhood(block, matrix, keys, data, from, math.min(from + chunkRows, count), positions)
    }
  }

  private def neighbourhood(
      block: Block,
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
    new Neighbourhood(from, new Csr(indptr, columns.map(positions), weights), sources, own, block.haloStart, ofEdges)
  }
}
