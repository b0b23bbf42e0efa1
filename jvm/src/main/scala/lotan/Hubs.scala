package lotan

/** The spreading of hubs' edges over the partitions. A hub is a vertex with a large share of its partition's edges.
  *
  * Every partition keeps the edges from its own vertices to hubs elsewhere, and sums along them: one row for each hub and
  * partition travels, not one for each source of a hub. The hub's own partition adds those rows in the order of the
  * partitions. What is left there is `rest`, in which hubs have in-edges from their own partition only.
  *
  * @param own
  *   rows of the block's hubs, ascending
  * @param rest
  *   the block without the edges that other partitions have of it; None: they have none, and it has none of theirs
  * @param start
  *   `[partitions + 1]`: hubs of partition p are rows `start(p) until start(p + 1)` of `forward`, in the order of its `own`
  * @param forward
  *   `[hubs elsewhere x count]`: the edges from the block's vertices to them
  * @param reverse
  *   `[count x hubs elsewhere]`: its transpose
  * @param sources
  *   `[partitions]`: places in the rest's halo of each owner, ascending, whose vertices have a large share of out-edges here:
  *   where all partitions are in one JVM, their sums are computed here and not by their owner
  */
final class Hubs(
    val own: Array[Int],
    val rest: Option[Block],
    val start: Array[Int],
    val forward: Csr,
    val reverse: Csr,
    val sources: Array[Array[Int]]
) extends Serializable {

  /** True if there are edges to spread. */
  def nonEmpty: Boolean = rest.isDefined || sources.exists(_.nonEmpty)
}

object Hubs {

  /** In-edges from other partitions, or out-edges to one, from which on spreading them may be worth an exchange. */
  val LeastEdges = 1024

  /** No more vertices of a partition than this can be hubs. */
  private val Share = 16

  private[lotan] def isLarge(edges: Int, ofAll: Int, least: Int): Boolean =
    edges >= least && edges.toLong * Share >= ofAll

  /** The hubs of a block that shares no hub with others. */
  private[lotan] def none(sources: Array[Array[Int]]): Hubs = {
    val nothing = new Csr(Array(0), Array.empty, None)
    new Hubs(Array.empty, None, new Array(sources.length + 1), nothing, nothing, sources)
  }

  private[lotan] def none(partitions: Int): Hubs = none(Array.fill(partitions)(Array.empty[Int]))

  /** See `sources` there. */
  private[lotan] def largeSources(block: Block, least: Int): Array[Array[Int]] = {
    val starts = block.graph.reverse.indptr
    Array.tabulate(block.partitions) { owner =>
      val first = block.haloStart(owner)
      Array
        .range(0, block.haloStart(owner + 1) - first)
        .filter(i => isLarge(starts(first + i + 1) - starts(first + i), block.graph.forward.edges, least))
    }
  }
}
