package lotan

import java.util

import org.apache.spark.rdd.RDD

/** The adjoint of Collect: it sums, for each vertex, the rows that were returned for it as a source of chunks.
  *
  * Chunks of a partition are summed in their order before anything leaves it, so that one row per halo vertex crosses a
  * partition boundary; what arrives is added in the order of the senders. A partition's sums for its own vertices take the same
  * way: contributions come from workers, and are asked for once only.
  *
  * @param width
  *   numbers per row
  * @param made
  *   level up to which vertices have sums: farther off than those in chunks
  */
final case class Gather(width: Int, made: Int = Block.All) {

  /** The sums for every vertex.
    *
    * @param near
    *   the chunks: see `Collect`
    * @param contributions
    *   for each chunk of every partition, in order: `[sources x width]`
    */
  def apply(blocks: RDD[Block], near: RDD[Array[Neighbourhood]], contributions: RDD[Array[Rows]]): RDD[Rows] = {
    val partial = blocks.zipPartitions(near, contributions) { (ofBlock, ofNear, ofChunks) =>
      Iterator.single(sums(ofBlock.next(), ofNear.next(), ofChunks.next()))
    }
    blocks.zipPartitions(Exchange.partials(blocks, partial)) { (ofBlock, received) =>
      Iterator.single(add(ofBlock.next(), received.next()))
    }
  }

  /** Returns the sums by owner. Those for the block's own vertices are at its own place; empty places are null. */
  private def sums(block: Block, near: Array[Neighbourhood], chunks: Array[Rows]): Array[Rows] = {
    require(
      near.length == chunks.length,
      s"${chunks.length} contributions for ${near.length} chunks in partition ${block.partition}"
    )
    val sums = Array.tabulate(block.partitions)(owner => empty(block.sourcesOf(owner), near))
    for (i <- near.indices) addChunk(sums, block, near(i).sources, chunks(i))
    sums
  }

  private def addChunk(sums: Array[Rows], block: Block, sources: Array[Int], rows: Rows): Unit = {
    require(
      rows.count == sources.length && (rows.width == width || sources.isEmpty),
      s"contributions of ${rows.count} rows of width ${rows.width} for ${sources.length} sources of width $width"
    )
    var owner = -1 // sources ascend: own vertices, then the halo by owner
    for (i <- sources.indices) {
      val own = sources(i) < block.count
      while (!own && sources(i) >= block.haloStart(owner + 1)) owner += 1
      val place = if (own) block.partition else owner
      val start = if (own) 0 else block.haloStart(owner)
      AddRows.one(sums(place).values, (sources(i) - start) * width, rows.values, i * width, width)
    }
  }

  /** Returns zeros for an owner's vertices, up to the last one that is a source of a chunk; null if there is none. */
  private def empty(owned: Range, near: Array[Neighbourhood]): Rows = {
    val ends = near.map { chunk =>
      val found = util.Arrays.binarySearch(chunk.sources, owned.end)
      val below = if (found >= 0) found else -found - 1 // how many of its sources come before the owner's end
      if (below == 0) 0 else chunk.sources(below - 1) + 1 - owned.start
    }
    val count = ends.maxOption.getOrElse(0)
    if (count <= 0) null else Rows.zeros(count, width)
  }

  private def add(block: Block, received: Array[Parcel]): Rows = {
    val out = Rows.zeros(block.rows(made), width)
    Propagate.addPartials(out, block, received)
    out
  }
}
