package lotan

import java.util

import org.apache.spark.rdd.RDD

/** Sums along edges: output[v] = sum over in-edges (u, v) of [weight *] input[u]; reverse: over out-edges (v, u).
  *
  * Forward brings each halo row once to where it is needed, and multiplies there. Reverse multiplies with the transpose where
  * the edges are, and brings one sum per halo vertex to its owner (Reverse Graph Backpropagation). Both are one shuffle, or
  * none where all partitions share one heap, and add up in an order that depends on the graph and the partition count alone.
  *
  * @param edges
  *   the edge set
  * @param weighted
  *   true if a message is multiplied with the weight of its edge
  * @param reverse
  *   against the edges' direction: the adjoint of forward
  * @param within
  *   level up to which edges end that are summed over; forward has sums for the vertices within it, and reads rows of those
  *   within the next
  * @param made
  *   reverse: level up to which vertices have sums, zero where no such edge begins
  */
final case class Propagate(
    edges: EdgeSet,
    weighted: Boolean,
    reverse: Boolean,
    within: Int = Block.All,
    made: Int = Block.All
) {

  /** The number of a block's vertices that have sums. */
  private[lotan] def sums(block: Block): Int = block.rows(if (reverse) made else within)

  /** The level up to which rows are read. */
  private[lotan] def read: Int = if (reverse) within else Block.farther(within)

  /** The transpose of the edges that are summed over. */
  private[lotan] def transpose(block: Block): Csr = block.edges(edges).reverseUpTo(block.rows(within))

  /** The sums for every vertex. `column` is read by several tasks: the caller persists and unpersists it.
    *
    * @param shared
    *   true if all partitions are in one JVM, so that rows need not travel
    * @param hubs
    *   true to spread the edges of hubs, which takes one more exchange
    */
  def apply(blocks: RDD[Block], column: RDD[Rows], shared: Boolean, hubs: Boolean = false): RDD[Rows] =
    if (shared) SharedHeap(this, hubs)(blocks, column)
    else {
      val rest = if (hubs) blocks.map(_.withoutHubs) else blocks
      val sums = if (reverse) backward(rest, column) else forward(rest, column)
      if (hubs) HubSums(this).added(blocks, column, sums) else sums
    }

  /** As `apply` in one JVM, with each row computed when it is read: for a column that one reader reads once. */
  def asRead(blocks: RDD[Block], column: RDD[Rows], hubs: Boolean = false): RDD[RowReader] =
    SharedHeap(this, hubs).sums(blocks, column)

  private def forward(blocks: RDD[Block], column: RDD[Rows]): RDD[Rows] =
    blocks.zipPartitions(column, Exchange.halo(blocks, column, read)) { (ofBlock, ofColumn, ofHalo) =>
      Iterator.single(gather(ofBlock.next(), ofColumn.next(), ofHalo.next()))
    }

  private def gather(block: Block, rows: Rows, halo: Array[Array[Float]]): Rows = {
    val out = started(block, rows)
    val product = new SparseProduct(rows.values +: halo, 0 +: block.haloStart, rows.width)
    product.addTo(out.values, block.edges(edges).forward, weighted, 0, sums(block))
    out
  }

  private def backward(blocks: RDD[Block], column: RDD[Rows]): RDD[Rows] = {
    val partial = blocks.zipPartitions(column) { (ofBlock, ofColumn) =>
      Iterator.single(haloSums(ofBlock.next(), ofColumn.next()))
    }
    blocks.zipPartitions(column, Exchange.partials(blocks, partial)) { (ofBlock, ofColumn, received) =>
      Iterator.single(ownSums(ofBlock.next(), ofColumn.next(), received.next()))
    }
  }

  private def haloSums(block: Block, rows: Rows): Array[Rows] = {
    val matrix = transpose(block)
    Propagate.check(block, rows, within)
    Array.tabulate(block.partitions) { owner =>
      val from = block.haloStart(owner)
      val until = Csr.end(matrix.indptr, from, block.haloStart(owner + 1)) // those who have no such edge come last
      if (from == until) null
      else {
        val out = Rows.zeros(until - from, rows.width)
        product(block, rows).addTo(out.values, matrix, weighted, from, until)
        out
      }
    }
  }

  private def ownSums(block: Block, rows: Rows, received: Array[Parcel]): Rows = {
    val out = started(block, rows)
    product(block, rows).addTo(out.values, transpose(block), weighted, 0, sums(block))
    Propagate.addPartials(out, block, received)
    out
  }

  private def started(block: Block, rows: Rows): Rows = {
    val out = Rows.zeros(sums(block), rows.width)
    Propagate.start(block, this, rows, 0, sums(block), out.values)
    out
  }

  private def product(block: Block, rows: Rows) =
    new SparseProduct(Array(rows.values), Array(0, block.count), rows.width)
}

object Propagate {

  /** Where the sums of rows `from until until` start, whatever was there: at the self-loop that each vertex has beside its
    * edges, or at zero.
    */
  private[lotan] def start(
      block: Block,
      step: Propagate,
      rows: Rows,
      from: Int,
      until: Int,
      out: Array[Float]
  ): Unit =
    start(block.edges(step.edges).loops, block.rows(step.within), step.weighted, rows, from, until, out)

  /** The same, given the weights of self-loops and the number of rows whose loops are summed over. */
  private[lotan] def start(
      weightsOfLoops: Option[Array[Float]],
      looped: Int,
      weighted: Boolean,
      rows: Rows,
      from: Int,
      until: Int,
      out: Array[Float]
  ): Unit = {
    val width = rows.width
    val end = math.max(from, math.min(until, looped))
    weightsOfLoops match {
      case Some(_) if !weighted =>
        if (from < end) rows.read(from, end, out)
        util.Arrays.fill(out, (end - from) * width, (until - from) * width, 0f)
      case loops =>
        util.Arrays.fill(out, 0, (until - from) * width, 0f)
        for (weights <- loops; row <- from until end)
          AddRows.oneScaled(out, (row - from) * width, rows.values, row * width, weights(row), width)
    }
  }

  /** Throws IllegalArgumentException if the rows are not those of the block's vertices, or more than those within a level. */
  private[lotan] def check(block: Block, rows: Rows, within: Int = Block.All): Unit =
    require(
      rows.count >= block.rows(within) && rows.count <= block.count,
      s"a column has ${rows.count} rows in a partition of ${block.rows(within)} vertices"
    )

  /** Adds what was summed for this block's vertices, in the order of the senders. */
  def addPartials(out: Rows, block: Block, received: Array[Parcel]): Unit =
    for (sender <- received.indices; parcel <- Option(received(sender))) {
      val rows = if (sender == block.partition) Array.range(0, block.count) else block.send(sender)
      val count = parcel.values.length / out.width // the others have none
      var i = 0
      while (i < count) {
        AddRows.one(out.values, rows(i) * out.width, parcel.values, i * out.width, out.width)
        i += 1
      }
    }
}
