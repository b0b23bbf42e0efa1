package lotan

import org.apache.spark.rdd.RDD

/** Propagate where all partitions are in one JVM: rows are read where they lie, and nothing is packed, written or copied.
  *
  * Adds up in the same order as the form with a shuffle does, so that results have the same bits.
  */
final private case class SharedHeap(edges: EdgeSet, weighted: Boolean) {

  /** Sums over in-edges. */
  def forward(blocks: RDD[Block], column: RDD[Rows]): RDD[Rows] =
    exchange(blocks, column) { (block, all, rows) =>
      val out = Propagate.start(block, edges, weighted, rows(block.partition))
      val sources = rows(block.partition).values +: rows.map(_.values)
      val picks = null +: all.map(_.send(block.partition)) // the halo of an owner, as rows of that owner
      new SparseProduct(sources, 0 +: block.haloStart, out.width, Some(picks))
        .addTo(out.values, block.edges(edges).forward, weighted, 0, block.count)
      out
    }

  /** Sums over out-edges. */
  def reverse(blocks: RDD[Block], column: RDD[Rows]): RDD[Rows] =
    exchange(blocks, column) { (block, all, rows) =>
      val out = Propagate.start(block, edges, weighted, rows(block.partition))
      product(block, rows(block.partition))
        .addTo(out.values, block.edges(edges).reverse, weighted, 0, block.count)
      for (other <- all) addHalo(out, block, other, product(other, rows(other.partition)))
      out
    }

  /** Adds the sums that `other` has for vertices of `block`, row by row: each sum is finished before it is added. */
  private def addHalo(out: Rows, block: Block, other: Block, product: SparseProduct): Unit = {
    val targets = block.send(other.partition)
    val matrix = other.edges(edges).reverse
    val first = other.haloStart(block.partition)
    val sum = new Array[Float](out.width)
    var i = 0
    while (i < targets.length) {
      java.util.Arrays.fill(sum, 0f)
      product.addTo(sum, matrix, weighted, first + i, first + i + 1)
      AddRows.one(out.values, targets(i) * out.width, sum, 0, out.width)
      i += 1
    }
  }

  private def product(block: Block, rows: Rows) =
    new SparseProduct(Array(rows.values), Array(0, block.count), rows.width)

  private def exchange(blocks: RDD[Block], column: RDD[Rows])(
      sum: (Block, Array[Block], Array[Rows]) => Rows
  ): RDD[Rows] =
    blocks.zipPartitions(new Everyone(blocks), new Everyone(column)) { (ofBlock, ofBlocks, ofRows) =>
      val block = ofBlock.next() // not by the task's number: a task may compute partitions other than its own
      val all = ofBlocks.next()
      val rows = ofRows.next()
      for ((one, own) <- all.zip(rows)) Propagate.check(one, own)
      Iterator.single(sum(block, all, rows))
    }
}
