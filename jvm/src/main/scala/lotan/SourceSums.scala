package lotan

import org.apache.spark.rdd.RDD

/** Sums over out-edges: the opposite way of `SourceRows`.
  *
  * Each partition sums for its sources along the edges that end in it. What it has for its halo goes to the owners, one row per
  * halo vertex, and is added there in the order of the partitions (Reverse Graph Backpropagation).
  *
  * @param width
  *   numbers per row
  * @param sum
  *   given a block and its rows of each input, adds to an array the sums for its sources `from until until`, that of `from` first
  */
final private case class SourceSums(width: Int)(sum: (Block, Seq[Rows], Array[Float], Int, Int) => Unit) {

  /** The sums for every vertex.
    *
    * @param inputs
    *   columns of vertices or edges, read by several tasks: the caller persists them
    * @param shared
    *   whether all partitions are in one JVM; the result has the same bits
    */
  def apply(blocks: RDD[Block], inputs: Seq[RDD[Rows]], shared: Boolean): RDD[Rows] = {
    val zipped = Zipped(blocks, inputs)
    if (shared)
      zipped.zipPartitions(new Everyone(zipped)) { (own, all) =>
        val (block, rows) = own.next()
        val out = ownSums(block, rows)
        for ((other, theirs) <- all.next()) addHalo(out, block, other, theirs)
        Iterator.single(out)
      }
    else {
      val partial = zipped.map { case (block, rows) => haloSums(block, rows) }
      zipped.zipPartitions(Exchange.partials(blocks, partial)) { (own, received) =>
        val (block, rows) = own.next()
        val out = ownSums(block, rows)
        Propagate.addPartials(out, block, received.next())
        Iterator.single(out)
      }
    }
  }

  private def ownSums(block: Block, rows: Seq[Rows]): Rows = {
    val out = Rows.zeros(block.count, width)
    sum(block, rows, out.values, 0, block.count)
    out
  }

  private def haloSums(block: Block, rows: Seq[Rows]): Array[Rows] = Array.tabulate(block.partitions) { owner =>
    val from = block.haloStart(owner)
    val until = block.haloStart(owner + 1)
    if (from == until) null
    else {
      val out = Rows.zeros(until - from, width)
      sum(block, rows, out.values, from, until)
      out
    }
  }

  /** Adds the sums that `other` has for vertices of `block`: each is finished before it is added, as if it had travelled. */
  private def addHalo(out: Rows, block: Block, other: Block, rows: Seq[Rows]): Unit = {
    val targets = block.send(other.partition)
    val first = other.haloStart(block.partition)
    val one = new Array[Float](width)
    for (i <- targets.indices) {
      java.util.Arrays.fill(one, 0f)
      sum(other, rows, one, first + i, first + i + 1)
      AddRows.one(out.values, targets(i) * width, one, 0, width)
    }
  }
}

/** Blocks with their rows of several columns. */
private object Zipped {
  def apply(blocks: RDD[Block], columns: Seq[RDD[Rows]]): RDD[(Block, Seq[Rows])] =
    columns.foldLeft(blocks.map(block => (block, Seq.empty[Rows]))) { (zipped, column) =>
      zipped.zipPartitions(column) { (left, right) =>
        val (block, rows) = left.next()
        Iterator.single((block, rows :+ right.next()))
      }
    }
}
