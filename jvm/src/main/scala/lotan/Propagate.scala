package lotan

import org.apache.spark.rdd.RDD

/** Sums along edges: output[v] = sum over in-edges (u, v) of [weight *] input[u]; reverse: over out-edges (v, u).
  *
  * Forward brings each halo row once to where it is needed, and multiplies there. Reverse multiplies with the transpose where
  * the edges are, and brings one sum per halo vertex to its owner (Reverse Graph Backpropagation). Both are one shuffle, or
  * none where all partitions share one heap, and add up in an order that depends on the graph and the partition count alone.
  *
  * @param edges
  *   which edges
  * @param weighted
  *   whether a message is multiplied with the weight of its edge
  * @param reverse
  *   against the edges' direction: the adjoint of forward
  */
final case class Propagate(edges: EdgeSet, weighted: Boolean, reverse: Boolean) {

  /** The sums for every vertex. `column` is read by several tasks: the caller persists and unpersists it.
    *
    * @param shared
    *   whether all partitions are in one JVM, so that rows need not travel
    */
  def apply(blocks: RDD[Block], column: RDD[Rows], shared: Boolean): RDD[Rows] =
    (shared, reverse) match {
      case (true, false) => SharedHeap(edges, weighted).forward(blocks, column)
      case (true, true) => SharedHeap(edges, weighted).reverse(blocks, column)
      case (false, false) => forward(blocks, column)
      case (false, true) => backward(blocks, column)
    }

  private def forward(blocks: RDD[Block], column: RDD[Rows]): RDD[Rows] =
    blocks.zipPartitions(column, Exchange.halo(blocks, column)) { (ofBlock, ofColumn, ofHalo) =>
      Iterator.single(gather(ofBlock.next(), ofColumn.next(), ofHalo.next()))
    }

  private def gather(block: Block, rows: Rows, halo: Array[Array[Float]]): Rows = {
    val out = Propagate.start(block, edges, weighted, rows)
    val product = new SparseProduct(rows.values +: halo, 0 +: block.haloStart, rows.width)
    product.addTo(out.values, block.edges(edges).forward, weighted, 0, block.count)
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

  private def haloSums(block: Block, rows: Rows): Array[Rows] = Array.tabulate(block.partitions) { owner =>
    val from = block.haloStart(owner)
    val until = block.haloStart(owner + 1)
    if (from == until) null
    else {
      val out = Rows.zeros(until - from, rows.width)
      product(block, rows).addTo(out.values, block.edges(edges).reverse, weighted, from, until)
      out
    }
  }

  private def ownSums(block: Block, rows: Rows, received: Array[Parcel]): Rows = {
    val out = Propagate.start(block, edges, weighted, rows)
    product(block, rows).addTo(out.values, block.edges(edges).reverse, weighted, 0, block.count)
    Propagate.addPartials(out, block, received)
    out
  }

  private def product(block: Block, rows: Rows) =
    new SparseProduct(Array(rows.values), Array(0, block.count), rows.width)
}

object Propagate {

  /** Where sums start: at the self-loop that each vertex has beside its edges, or at zero. */
  private[lotan] def start(block: Block, edges: EdgeSet, weighted: Boolean, rows: Rows): Rows = {
    val out = Rows.zeros(block.count, rows.width)
    block.edges(edges).loops.foreach { loops =>
      if (!weighted) System.arraycopy(rows.values, 0, out.values, 0, rows.values.length)
      else
        for (row <- 0 until block.count) {
          val at = row * rows.width
          AddRows.oneScaled(out.values, at, rows.values, at, loops(row), rows.width)
        }
    }
    out
  }

  /** Throws IllegalArgumentException if the rows are not those of the block's vertices. */
  private[lotan] def check(block: Block, rows: Rows): Unit =
    require(rows.count == block.count, s"a column has ${rows.count} rows in a partition of ${block.count} vertices")

  /** Adds what was summed for this block's vertices, in the order of the senders. */
  def addPartials(out: Rows, block: Block, received: Array[Parcel]): Unit =
    for (sender <- received.indices; parcel <- Option(received(sender))) {
      val rows = if (sender == block.partition) Array.range(0, block.count) else block.send(sender)
      var i = 0
      while (i < rows.length) {
        AddRows.one(out.values, rows(i) * out.width, parcel.values, i * out.width, out.width)
        i += 1
      }
    }
}
