package lotan

import org.apache.spark.rdd.RDD

/** The sums of a block for the sources of its edges. Only one thread may use them at a time. */
private trait SourceSum {

  /** Adds the sums for sources `from until until` to an array, that of `from` first. */
  def addTo(out: Array[Float], from: Int, until: Int): Unit
}

/** Sums over out-edges: the opposite way of `SourceRows`.
  *
  * Each partition sums for its sources along the edges that end in it. What it has for its halo goes to the owners, one row per
  * halo vertex, and is added there in the order of the partitions (Reverse Graph Backpropagation).
  *
  * @param scope
  *   which edges, and up to which level vertices have sums: farther off than the edges end
  * @param width
  *   numbers per row
  * @param of
  *   makes a block's sums from its rows of each input
  */
final private case class SourceSums(scope: EdgeScope, width: Int)(of: (Block, Seq[Rows]) => SourceSum) {
  require(
    scope.made == Block.All || scope.made > scope.within,
    s"sums up to level ${scope.made} for sources of edges that end up to level ${scope.within}"
  )

  /** The sums for every vertex.
    *
    * @param inputs
    *   columns of vertices or edges, read by several tasks: the caller persists them
    * @param shared
    *   true if all partitions are in one JVM; the result has the same bits
    */
  def apply(blocks: RDD[Block], inputs: Seq[RDD[Rows]], shared: Boolean): RDD[Rows] = {
    val zipped = Zipped(blocks, inputs)
    if (shared)
      zipped.zipPartitions(new Everyone(zipped)) { (own, all) =>
        val (block, rows) = own.next()
        val out = ownSums(block, rows)
        for ((other, theirs) <- all.next() if other.partition != block.partition) addHalo(out, block, other, theirs)
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
    val out = scope.vertexRows(block, width)
    of(block, rows).addTo(out.values, 0, out.count)
    out
  }

  private def haloSums(block: Block, rows: Seq[Rows]): Array[Rows] = {
    val (order, sum) = (scope.order(block), of(block, rows))
    Array.tabulate(block.partitions) { owner =>
      val halo = order.used(block.sourcesOf(owner))
      if (owner == block.partition || halo.isEmpty) null
      else {
        val out = Rows.zeros(halo.length, width)
        sum.addTo(out.values, halo.start, halo.end)
        out
      }
    }
  }

  /** Adds the sums that `other` has for vertices of `block`: each is finished before it is added, as if it had travelled. */
  private def addHalo(out: Rows, block: Block, other: Block, rows: Seq[Rows]): Unit = {
    val targets = block.send(other.partition)
    val halo = scope.order(other).used(other.sourcesOf(block.partition))
    val (sum, one) = (of(other, rows), new Array[Float](width))
    var i = 0
    while (i < halo.length) {
      java.util.Arrays.fill(one, 0f)
      sum.addTo(one, halo.start + i, halo.start + i + 1)
      AddRows.one(out.values, targets(i) * width, one, 0, width)
      i += 1
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
