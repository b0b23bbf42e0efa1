package lotan

import java.util

import scala.collection.mutable

/** Sums the rows that a stage returns for the sources of a partition's chunks.
  *
  * Chunks are added in their order, so that sums have the same bits whichever chunk comes back first. A chunk that comes back
  * before an earlier one waits; no other chunk is held.
  *
  * @param partition
  *   the partition of the chunks
  * @param count
  *   vertices of the partition
  * @param partitions
  *   the number of partitions
  * @param near
  *   the chunks: see `Collect`
  * @param width
  *   numbers per row
  */
final private class ContributionSums(
    partition: Int,
    count: Int,
    partitions: Int,
    near: Array[Neighbourhood],
    width: Int
) {
  private val haloStart = near.headOption.fold(new Array[Int](partitions + 1))(_.haloStart)
  private val sums = Array.tabulate(partitions)(empty)
  private val waiting = mutable.Map.empty[Int, Rows]
  private var added = 0

  /** Takes the rows of a chunk: `[sources x width]`. */
  def take(chunk: Int, rows: Rows): Unit = {
    val sources = near(chunk).sources.length
    require(
      rows.count == sources && (rows.width == width || sources == 0),
      s"contributions of ${rows.count} rows of width ${rows.width} for $sources sources of width $width"
    )
    waiting(chunk) = rows
    while (waiting.contains(added)) {
      add(near(added).sources, waiting.remove(added).get)
      added += 1
    }
  }

  /** The sums by owner, when all chunks are there. Those for own vertices are at the partition's place; empty places are null. */
  def byOwner: Array[Rows] = {
    require(added == near.length, s"contributions of $added chunks of ${near.length} in partition $partition")
    sums
  }

  private def add(sources: Array[Int], rows: Rows): Unit = {
    var owner = -1 // sources ascend: own vertices, then the halo by owner
    for (i <- sources.indices) {
      val own = sources(i) < count
      while (!own && sources(i) >= haloStart(owner + 1)) owner += 1
      val place = if (own) partition else owner
      val start = if (own) 0 else haloStart(owner)
      AddRows.one(sums(place).values, (sources(i) - start) * width, rows.values, i * width, width)
    }
  }

  /** Returns zeros for an owner's vertices, up to the last one that is a source of a chunk; null if there is none. */
  private def empty(owner: Int): Rows = {
    val (start, end) = if (owner == partition) (0, count) else (haloStart(owner), haloStart(owner + 1))
    val ends = near.map { chunk =>
      val found = util.Arrays.binarySearch(chunk.sources, end)
      val below = if (found >= 0) found else -found - 1 // how many of its sources come before the owner's end
      if (below == 0) 0 else chunk.sources(below - 1) + 1 - start
    }
    val rows = ends.maxOption.getOrElse(0)
    if (rows <= 0) null else Rows.zeros(rows, width)
  }
}
