package lotan

import org.apache.spark.rdd.RDD

/** The adjoint of Extreme: each gradient goes to the sources that have the extreme, in equal shares.
  *
  * Shares are computed where the edges end, and brought to the sources' owners: one row for each halo vertex, in one shuffle,
  * or none where all partitions share one heap.
  *
  * @param scope
  *   the edges along which it runs
  */
final case class ExtremeGradient(scope: EdgeScope) {

  /** Returns the shares that every partition has for the sources of its edges, by owner; null if there are none. */
  def shares(
      blocks: RDD[Block],
      sources: RDD[SourceRows],
      extreme: RDD[Rows],
      gradient: RDD[Rows]
  ): RDD[Array[Rows]] =
    Zipped(blocks, Seq(extreme, gradient)).zipPartitions(sources) { (ofBlock, ofSources) =>
      val (block, rows) = ofBlock.next()
      Iterator.single(sums(block, ofSources.next(), rows.head, rows.last))
    }

  /** Returns the shares by owner. Those for the block's own vertices are at its own place; empty places are null. */
  private def sums(block: Block, sources: SourceRows, extreme: Rows, gradient: Rows): Array[Rows] = {
    for (rows <- Seq(extreme, gradient)) scope.check(block, rows)
    val (order, width) = (scope.order(block), sources.width)
    val matrix = order.matrix
    val starts = Array.tabulate(block.partitions)(block.sourcesOf(_).start)
    val out = Array.tabulate(block.partitions) { owner =>
      val used = order.used(block.sourcesOf(owner))
      if (used.isEmpty) null else Rows.zeros(used.length, width)
    }
    val shares = new Shares(extreme.values, gradient.values, width)
    for (row <- 0 until matrix.rows) {
      val (first, end) = (matrix.indptr(row), matrix.indptr(row + 1))
      shares.start(row)
      for (edge <- first until end)
        shares.count(sources.array(matrix.columns(edge)), sources.offset(matrix.columns(edge)))
      shares.divide()
      for (edge <- first until end) {
        val source = matrix.columns(edge)
        val owner = sources.owner(source)
        shares.give(sources.array(source), sources.offset(source), out(owner).values, (source - starts(owner)) * width)
      }
    }
    out
  }

  /** The gradient of one vertex after the other, to be shared among the sources that have its extreme. */
  final private class Shares(extreme: Array[Float], gradient: Array[Float], width: Int) {
    private val winners = new Array[Int](width)
    private val share = new Array[Float](width)
    private var at = 0

    def start(row: Int): Unit = {
      java.util.Arrays.fill(winners, 0)
      at = row * width
    }

    /** Notes the numbers at which a source's row has the extreme. */
    def count(row: Array[Float], from: Int): Unit = {
      var j = 0
      while (j < width) {
        if (row(from + j) == extreme(at + j)) winners(j) += 1
        j += 1
      }
    }

    def divide(): Unit = {
      var j = 0
      while (j < width) {
        share(j) = gradient(at + j) / math.max(winners(j), 1)
        j += 1
      }
    }

    /** Adds a source's share to `out`. */
    def give(row: Array[Float], from: Int, out: Array[Float], to: Int): Unit = {
      var j = 0
      while (j < width) {
        if (row(from + j) == extreme(at + j)) out(to + j) += share(j)
        j += 1
      }
    }
  }
}

object ExtremeGradient {

  /** The gradient of every vertex's row.
    *
    * @param shares
    *   persisted if they are shared
    * @param made
    *   level up to which vertices have one: farther off than the edges end
    * @param shared
    *   true if all partitions are in one JVM, so that rows need not travel
    */
  def apply(
      blocks: RDD[Block],
      shares: RDD[Array[Rows]],
      width: Int,
      shared: Boolean,
      made: Int = Block.All
  ): RDD[Rows] = {
    val received =
      if (!shared) Exchange.partials(blocks, shares)
      else new Everyone(shares).zipPartitions(blocks)((ofShares, ofBlock) => Iterator.single(lent(ofShares, ofBlock)))
    blocks.zipPartitions(received) { (ofBlock, ofShares) =>
      val block = ofBlock.next()
      val out = Rows.zeros(block.rows(made), width)
      Propagate.addPartials(out, block, ofShares.next())
      Iterator.single(out)
    }
  }

  /** Returns the parcels that a shuffle would bring. */
  private def lent(shares: Iterator[Array[Array[Rows]]], blocks: Iterator[Block]): Array[Parcel] = {
    val owner = blocks.next().partition
    shares.next().zipWithIndex.map { case (rows, sender) =>
      if (rows(owner) == null) null else new Parcel(sender, Nil, rows(owner).width, rows(owner).values)
    }
  }
}
