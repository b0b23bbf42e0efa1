package lotan

import org.apache.spark.rdd.RDD

/** The edges between one vertex partition and another one, for sums over them at the former.
  *
  * @param targets
  *   rows of the former that have such edges, ascending
  * @param places
  *   rows of the latter that the sums read, ascending; of the partition itself, all
  * @param matrix
  *   `[targets x places]`
  */
final private class EdgesOfOwner(val targets: Array[Int], val places: Array[Int], val matrix: Csr) extends Serializable

/** The edges along which a partition sums, by the partition whose rows they read: for whoever has the rows of one at a time.
  *
  * @param count
  *   vertices of the partition
  * @param loops
  *   as in `Edges`
  * @param levels
  *   for each partition, as in `Block`
  * @param owners
  *   for each partition; the partition itself is among them
  */
final private class EdgesByOwner(
    val partition: Int,
    val count: Int,
    val loops: Option[Array[Float]],
    levels: Array[Array[Int]],
    val owners: Array[EdgesOfOwner]
) extends Serializable {

  /** The number of a partition's vertices within a level; `Int.MaxValue` for those of another one if it is all. */
  def rows(of: Int, within: Int): Int =
    if (within != Block.All) levels(of)(within) else if (of == partition) count else Int.MaxValue

  def partitions: Int = owners.length
}

private object EdgesByOwner {

  /** The edges of a set, from every block to those partitions that read rows along them: one shuffle.
    *
    * @param reverse
    *   true for sums at the sources of edges, which read the rows of destinations
    */
  def apply(blocks: RDD[Block], edges: EdgeSet, reverse: Boolean): RDD[EdgesByOwner] = {
    val parcels = blocks.mapPartitions { ofBlock =>
      val block = ofBlock.next()
      val levels = new LongIds(block.levels.map(_.toLong))
      Iterator.range(0, block.partitions).map { to =>
        val (ids, weights) = if (reverse) outEdges(block, edges, to) else (Seq(longs(block.send(to))), Parcel.NoValues)
        to -> new Parcel(block.partition, levels +: ids, 1, weights)
      }
    }
    blocks.zipPartitions(Exchange(parcels, blocks.getNumPartitions)) { (ofBlock, ofReceived) =>
      val (block, received) = (ofBlock.next(), ofReceived.next())
      val levels = received.map(parcel => ints(parcel.ids.head))
      val owners =
        if (reverse) received.map(arrived(block, edges, _)) else inEdges(block, edges, received)
      Iterator.single(new EdgesByOwner(block.partition, block.count, block.edges(edges).loops, levels, owners))
    }
  }

  /** The in-edges of a block's vertices, by owner of their sources. */
  private def inEdges(block: Block, edges: EdgeSet, received: Array[Parcel]): Array[EdgesOfOwner] = {
    val matrix = block.edges(edges).forward
    val next = matrix.indptr.take(block.count) // entries ascend: own sources come first, then those of each owner
    val all = new Array[EdgesOfOwner](block.partitions)
    for (owner <- block.partition +: block.send.indices.filter(_ != block.partition)) {
      val places = if (owner == block.partition) Array.range(0, block.count) else ints(received(owner).ids(1))
      all(owner) = below(matrix, next, block.sourcesOf(owner), places)
    }
    all
  }

  /** The entries of all rows whose columns are among `sources`, from entry `next` of each row on; moves `next` on. */
  private def below(matrix: Csr, next: Array[Int], sources: Range, places: Array[Int]): EdgesOfOwner = {
    val (targets, counts, entries) = (Array.newBuilder[Int], Array.newBuilder[Int], Array.newBuilder[Int])
    var row = 0
    while (row < next.length) {
      val first = next(row)
      var entry = first
      while (entry < matrix.indptr(row + 1) && matrix.columns(entry) < sources.end) {
        entries += entry
        entry += 1
      }
      if (entry > first) {
        targets += row
        counts += entry - first
      }
      next(row) = entry
      row += 1
    }
    val found = entries.result()
    val columns = found.map(matrix.columns(_) - sources.start)
    val weights = matrix.weights.map(all => found.map(all(_)))
    new EdgesOfOwner(targets.result(), places, new Csr(Csr.prefixSums(counts.result()), columns, weights))
  }

  /** For each of the owner's vertices that is in the halo, its out-edges into the block: their number, and their ends. */
  private def outEdges(block: Block, edges: EdgeSet, owner: Int): (Seq[LongIds], Array[Float]) = {
    val matrix = block.edges(edges).reverse
    val rows = block.sourcesOf(owner)
    val (first, last) = (matrix.indptr(rows.start), matrix.indptr(rows.end))
    val counts = rows.map(row => matrix.indptr(row + 1) - matrix.indptr(row)).toArray
    val ends = matrix.columns.slice(first, last)
    (Seq(longs(counts), longs(ends)), matrix.weights.fold(Parcel.NoValues)(_.slice(first, last)))
  }

  /** The out-edges of the block's vertices into another block, as `outEdges` there has sent them. */
  private def arrived(block: Block, edges: EdgeSet, sent: Parcel): EdgesOfOwner = {
    val from = sent.sender
    val (counts, ends) = (ints(sent.ids(1)), ints(sent.ids(2)))
    val all = Array.range(0, block.count)
    val (targets, places) =
      if (from == block.partition) (all, all) else (block.send(from), ends.distinct.sorted)
    val columns = ends.map(java.util.Arrays.binarySearch(places, _))
    val weights = block.edges(edges).forward.weights.map(_ => sent.values)
    new EdgesOfOwner(targets, places, new Csr(Csr.prefixSums(counts), columns, weights))
  }

  private def longs(values: Array[Int]) = new LongIds(values.map(_.toLong))

  private def ints(ids: Ids): Array[Int] = ids.asInstanceOf[LongIds].values.map(_.toInt)
}
