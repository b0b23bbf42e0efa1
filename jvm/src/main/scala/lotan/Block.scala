package lotan

import java.util.concurrent.ConcurrentHashMap

import lotan.messenger.{Digest, Longs}

/** The topology of one partition: its vertices, the edges that end in them, and what it exchanges with other partitions.
  *
  * Sources of edges are numbered: first the `count` vertices of this partition, then the halo, which are the vertices of other
  * partitions that have an edge into this one, by owner. Vertices, and the halo of an owner, lie in the order of their ids; after
  * `LevelOrder` in that of their levels, and of their ids within one.
  *
  * @param partition
  *   its number
  * @param ids
  *   its vertices: sorted while `levels` is empty, no more after `LevelOrder`
  * @param sourceKeys
  *   `[sources]`: row keys of all sources
  * @param haloStart
  *   `[partitions + 1]`: the halo of owner p is `haloStart(p) until haloStart(p + 1)`; empty for p = partition
  * @param send
  *   `[partitions]`: rows of this partition that are in the halo of partition p, ascending
  * @param graph
  *   the graph's edges
  * @param selfLoops
  *   the edges without self-loops, and one per vertex beside them
  * @param hubs
  *   how Propagate spreads the edges of hubs; they are among `graph` all the same
  * @param levels
  *   its vertices within each level, the first rows: see `LevelOrder`; empty where vertices are in the order of their ids
  */
final class Block(
    val partition: Int,
    val ids: Ids,
    val sourceKeys: Array[Long],
    val haloStart: Array[Int],
    val send: Array[Array[Int]],
    val graph: Edges,
    val selfLoops: Edges,
    val hubs: Hubs,
    val levels: Array[Int] = Array.emptyIntArray
) extends Serializable {
  def count: Int = ids.size

  /** The number of its vertices within a level, which are its first rows. `Block.All` stands for all vertices. */
  def rows(within: Int): Int = if (within == Block.All) count else levels(within)

  /** The lowest level of its vertices. It is 0 if the block has no levels, and `levels.length` if all are beyond the last. */
  def nearest: Option[Int] =
    if (count == 0) None
    else if (levels.isEmpty) Some(0)
    else Some(levels.indexWhere(_ > 0)).map(level => if (level < 0) levels.length else level)

  def partitions: Int = send.length

  /** The number of distinct sources: own vertices and halo. */
  def sources: Int = haloStart.last

  /** The sources that are vertices of a partition. */
  def sourcesOf(owner: Int): Range =
    if (owner == partition) 0 until count else haloStart(owner) until haloStart(owner + 1)

  @transient private lazy val chunked = new ConcurrentHashMap[(Int, Int), BlockChunks]

  /** The chunks of so many rows that the first `count` rows of the block are cut into: the same each time. */
  private[lotan] def chunks(rows: Int, count: Int): BlockChunks =
    chunked.computeIfAbsent((rows, count), _ => new BlockChunks(this, rows, count))

  @transient private lazy val relations = new ConcurrentHashMap[EdgeSet, Edges]

  /** The edges of a set. Those of a relation are picked at their first use. Which way edges go is the block's own. */
  def edges(set: EdgeSet): Edges = set.relation match {
    case None => if (set.loops) selfLoops else graph
    case Some(number) =>
      val own = relations.computeIfAbsent(set.asGiven, _ => Edges(graph.forward.ofType(number), sources))
      if (set.loops) relations.computeIfAbsent(set, _ => Edges.withSelfLoops(own, sources)) else own
  }

  /** Returns a column of the edges of a set that end here, loops among them, in the order of `Edges.withLoops`.
    *
    * @param layout
    *   what the data of the edges holds
    * @param original
    *   the block of the same vertices with the graph's edges as they are: added self-loops follow from their in-edges there
    */
  def columnOf(set: EdgeSet, column: EdgeColumn, layout: EdgeLayout, original: Block): EdgeData = {
    val own = edges(set.asGiven).forward
    val values = column.of(own, layout)
    if (!set.loops) values
    else {
      val looped = edges(set)
      val into = original.edges(set.asGiven).forward
      val ofLoops = column.added(into, if (original eq this) values else column.of(into, layout))
      for ((edge, row) <- looped.chosen.zipWithIndex if edge >= 0)
        System.arraycopy(values.values, edge * values.width, ofLoops.values, row * values.width, values.width)
      val plain = looped.forward
      (column.of(plain, layout) ++ ofLoops).pick(plain.placesWithDiagonal)
    }
  }

  /** Returns the block without transposes, which only Propagate reads. That frees their memory. */
  def asRows: Block =
    new Block(partition, ids, sourceKeys, haloStart, send, graph.asRows, selfLoops.asRows, hubs, levels)

  /** Returns the block with the edges that Propagate does not spread. */
  def withoutHubs: Block = hubs.rest.getOrElse(this)

  /** Returns the block with the rows that other partitions need of it. */
  def sending(rows: Array[Array[Int]], hubs: Hubs): Block = {
    val (one, other) = if (hubs.own.isEmpty) (graph, selfLoops) else (graph.asRows, selfLoops.asRows)
    new Block(partition, ids, sourceKeys, haloStart, rows, one, other, hubs)
  }
}

object Block {

  /** Stands for all vertices in place of a level. */
  val All: Int = -1

  /** The level of the sources of edges that end within a level. */
  def farther(within: Int): Int = if (within == All) All else within + 1
}

/** The row keys of a block's chunks, as tensors, and the digests of their ids. Every pipe sends them; they are computed once. */
final private[lotan] class BlockChunks(block: Block, rows: Int, count: Int) {
  private val firsts = (0 until count by rows).toArray

  private def length(first: Int) = math.min(rows, count - first)

  val keys: Array[Longs] = firsts.map(first => new Longs(block.sourceKeys, first, length(first)))
  val digests: Array[Long] =
    firsts.map(first => Digest.of(block.ids.select(Array.range(first, first + length(first)))))
}

/** The edges of one set that end in one partition, in both directions.
  *
  * @param forward
  *   `[count x sources]`: for each vertex, the sources of its in-edges
  * @param sources
  *   of the block
  * @param transpose
  *   `[sources x count]`; None if it is not expected to be needed
  * @param loops
  *   `[count]`: weight of the one self-loop that each vertex has beside these edges; None where there are no such loops
  * @param chosen
  *   `[count]`: the place of that self-loop among the graph's own edges, -1 if it was added; empty where there are no such loops
  */
final class Edges(
    val forward: Csr,
    sources: Int,
    transpose: Option[Csr],
    val loops: Option[Array[Float]],
    val chosen: Array[Int] = Array.emptyIntArray
) extends Serializable {

  /** `[sources x count]`: the transpose of `forward`. */
  @transient lazy val reverse: Csr = transpose.getOrElse(forward.transpose(sources))

  @transient private lazy val partial = new ConcurrentHashMap[Int, Csr]

  /** `reverse` with those edges alone that end in the first so many rows. Built once for each number. */
  def reverseUpTo(ends: Int): Csr =
    if (ends == forward.rows) reverse else partial.computeIfAbsent(ends, forward.first(_).transpose(sources))

  /** Returns the edges without the transpose, which frees its memory. */
  def asRows: Edges = new Edges(forward, sources, None, loops, chosen)

  /** `forward` with the loops among its entries. Built on first use; Propagate does without. */
  @transient lazy val withLoops: Csr = loops.fold(forward)(forward.withDiagonal)

  /** The order of edge columns. Built on first use. */
  @transient lazy val order: EdgeOrder = new EdgeOrder(withLoops, sources, withLoops.edges)

  @transient private lazy val firstOrders = new ConcurrentHashMap[Int, EdgeOrder]

  /** `order` of those edges alone that end in the first so many rows: they come first. Built once for each number. */
  def orderUpTo(ends: Int): EdgeOrder =
    if (ends == forward.rows) order
    else firstOrders.computeIfAbsent(ends, ends => new EdgeOrder(withLoops.first(ends), sources, withLoops.edges))

  /** How many edges, loops among them, end in the first so many rows. */
  def endingIn(ends: Int): Int = withLoops.indptr(ends)
}

object Edges {

  def apply(forward: Csr, sources: Int): Edges = new Edges(forward, sources, Some(forward.transpose(sources)), None)

  /** The edge set "self_loops" of a graph's edges. */
  def withSelfLoops(graph: Edges, sources: Int): Edges = {
    val csr = graph.forward
    val plain = csr.withoutDiagonal
    val loops = Array.fill(csr.rows)(1f)
    val chosen = Array.fill(csr.rows)(-1)
    for (row <- 0 until csr.rows; edge <- csr.indptr(row) until csr.indptr(row + 1))
      if (csr.columns(edge) == row) {
        chosen(row) = edge
        for (weights <- csr.weights) loops(row) = weights(edge)
      }
    val reverse = if (plain eq csr) graph.reverse else plain.transpose(sources)
    new Edges(plain, sources, Some(reverse), Some(loops), chosen)
  }
}
