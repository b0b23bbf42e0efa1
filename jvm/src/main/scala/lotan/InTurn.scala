package lotan

import java.util

import org.apache.spark.rdd.RDD

/** Propagate where all partitions are in one JVM that has room for few of them: a task holds its sums, and of one partition at a
  * time those rows of the column that it needs.
  *
  * Adds up in the same order as the other forms do, so that results have the same bits.
  */
final private case class InTurn(step: Propagate, hubs: Boolean) {

  /** The edges of every partition, for `apply`. The caller persists them. */
  def edges(blocks: RDD[Block]): RDD[EdgesByOwner] =
    EdgesByOwner(if (hubs) blocks.map(_.withoutHubs) else blocks, step.edges, step.reverse)

  /** The sums for every vertex. The caller persists `files`, which are those of `column`. */
  def apply(
      blocks: RDD[Block],
      edges: RDD[EdgesByOwner],
      column: RDD[Rows],
      files: RDD[ColumnFile]
  ): RDD[Rows] = {
    // The files come first: while a task computes those that are not there yet, it holds nothing of its own.
    val sums = new Everyone(files).zipPartitions(edges) { (ofFiles, ofEdges) =>
      Iterator.single(sum(ofFiles.next(), ofEdges.next()))
    }
    if (hubs) HubSums(step).added(blocks, column, sums) else sums
  }

  private def sum(files: Array[ColumnFile], edges: EdgesByOwner): Rows = {
    val own = edges.partition
    val out = Rows.zeros(edges.rows(own, if (step.reverse) step.made else step.within), files(own).width)
    addOwn(files(own), edges, out)
    for (owner <- files.indices if owner != own) {
      val of = edges.owners(owner)
      val count = InTurn.below(of.places, edges.rows(owner, step.read))
      add(of, files(owner).rows(of.places, count), out, together = step.reverse)
    }
    out
  }

  private def addOwn(file: ColumnFile, edges: EdgesByOwner, out: Rows): Unit = {
    val count = edges.rows(edges.partition, step.read)
    require(
      file.count >= count && file.count <= edges.count,
      s"a column has ${file.count} rows in a partition of $count vertices"
    )
    val rows = new Rows(file.width, file.rows(count))
    val looped = edges.rows(edges.partition, step.within)
    Propagate.start(edges.loops, looped, step.weighted, rows, 0, out.count, out.values)
    add(edges.owners(edges.partition), rows.values, out, together = false)
  }

  /** Adds what the vertices of an owner give.
    *
    * @param rows
    *   at the first of its places; edges from or to the others are left out
    * @param together
    *   true to finish the sum of each target before it is added
    */
  private def add(of: EdgesOfOwner, rows: Array[Float], out: Rows, together: Boolean): Unit = {
    val (width, count) = (out.width, rows.length / out.width)
    val product = new SparseProduct(Array(rows), Array(0, count), width)
    val sum = new Array[Float](width)
    var i = 0
    while (i < of.targets.length && of.targets(i) < out.count) {
      val first = of.matrix.indptr(i)
      var last = of.matrix.indptr(i + 1)
      while (last > first && of.matrix.columns(last - 1) >= count) last -= 1
      if (together) {
        util.Arrays.fill(sum, 0f)
        product.addEntries(sum, 0, of.matrix, step.weighted, first, last)
        AddRows.one(out.values, of.targets(i) * width, sum, 0, width)
      } else product.addEntries(out.values, of.targets(i) * width, of.matrix, step.weighted, first, last)
      i += 1
    }
  }
}

private object InTurn {

  /** How many of some ascending numbers are below `least`. */
  def below(ascending: Array[Int], least: Int): Int = {
    val found = util.Arrays.binarySearch(ascending, least)
    if (found >= 0) found else -found - 1
  }
}
