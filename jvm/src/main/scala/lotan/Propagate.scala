package lotan

import org.apache.spark.rdd.RDD

/** Sums along edges: output[v] = sum over in-edges (u, v) of [weight *] input[u]; reverse: over out-edges (v, u).
  *
  * Forward brings each halo row once to where it is needed, and multiplies there. Reverse multiplies with the transpose where
  * the edges are, and brings one sum per halo vertex to its owner (Reverse Graph Backpropagation). Both are one shuffle, and
  * add up in an order that depends on the graph and the partition count alone.
  *
  * @param edges
  *   which edges
  * @param weighted
  *   whether a message is multiplied with the weight of its edge
  * @param reverse
  *   against the edges' direction: the adjoint of forward
  */
final case class Propagate(edges: EdgeSet, weighted: Boolean, reverse: Boolean) {

  /** The sums for every vertex. `column` is read twice: the caller persists and unpersists it. */
  def apply(blocks: RDD[Block], column: RDD[Rows]): RDD[Rows] =
    if (reverse) backward(blocks, column) else forward(blocks, column)

  private def forward(blocks: RDD[Block], column: RDD[Rows]): RDD[Rows] =
    blocks.zipPartitions(column, Exchange.halo(blocks, column)) { (ofBlock, ofColumn, ofHalo) =>
      Iterator.single(gather(ofBlock.next(), ofColumn.next(), ofHalo.next()))
    }

  private def gather(block: Block, rows: Rows, halo: Array[Array[Float]]): Rows = {
    val out = Rows.zeros(block.count, rows.width)
    addLoops(out, block, rows)
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
    val out = Rows.zeros(block.count, rows.width)
    addLoops(out, block, rows)
    product(block, rows).addTo(out.values, block.edges(edges).reverse, weighted, 0, block.count)
    Propagate.addPartials(out, block, received)
    out
  }

  private def product(block: Block, rows: Rows) =
    new SparseProduct(Array(rows.values), Array(0, block.count), rows.width)

  private def addLoops(out: Rows, block: Block, rows: Rows): Unit = block.edges(edges).loops.foreach { loops =>
    if (!weighted) System.arraycopy(rows.values, 0, out.values, 0, rows.values.length)
    else
      for (row <- 0 until block.count)
        AddRows.oneScaled(out.values, row * rows.width, rows.values, row * rows.width, loops(row), rows.width)
  }
}

object Propagate {

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
