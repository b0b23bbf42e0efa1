package lotan

import java.util

import org.apache.spark.rdd.RDD

/** Propagate where all partitions are in one JVM: rows are read where they lie, and nothing is packed, written or copied.
  *
  * Adds up in the same order as the form with a shuffle does, so that results have the same bits.
  */
final private case class SharedHeap(step: Propagate, hubs: Boolean) {

  /** The sums, not yet computed: for whoever reads each row once. `column` is persisted by the caller. */
  def sums(blocks: RDD[Block], column: RDD[Rows]): RDD[RowReader] = {
    val used = rest(blocks)
    val ready =
      if (hubs && step.reverse) HubSums(step).sourceSums(blocks, column)
      else blocks.map(block => new Array[Parcel](block.partitions))
    val most = used.zipPartitions(new Everyone(used), new Everyone(column), ready) {
      (ofBlock, ofBlocks, ofRows, ofReady) =>
        val block = ofBlock.next() // not by the task's number: a task may compute partitions other than its own
        Iterator.single(reader(block, ofBlocks.next(), ofRows.next(), ofReady.next()))
    }
    if (hubs) HubSums(step).asRead(blocks, column, most) else most
  }

  /** The blocks without the edges that are spread. */
  private def rest(blocks: RDD[Block]): RDD[Block] = if (hubs) blocks.map(_.withoutHubs) else blocks

  private def reader(block: Block, all: Array[Block], rows: Array[Rows], ready: Array[Parcel]): RowReader = {
    for ((one, own) <- all.zip(rows)) Propagate.check(one, own, step.read)
    if (step.reverse) new OverOut(step, block, all, rows, ready) else new OverIn(step, block, all, rows)
  }

  /** The sums as rows. */
  def apply(blocks: RDD[Block], column: RDD[Rows]): RDD[Rows] = sums(blocks, column).map { sums =>
    val out = Rows.zeros(sums.count, sums.width)
    sums.read(0, sums.count, out.values)
    out
  }
}

/** Sums over in-edges. */
final private class OverIn(step: Propagate, block: Block, all: Array[Block], rows: Array[Rows]) extends RowReader {
  private val own = rows(block.partition)
  private val matrix = block.edges(step.edges).forward
  private val picks = null +: all.map(_.send(block.partition)) // the halo of an owner, as rows of that owner
  private val product = new SparseProduct(own.values +: rows.map(_.values), 0 +: block.haloStart, width, Some(picks))

  override def width: Int = own.width
  override def count: Int = step.sums(block)

  override def read(from: Int, until: Int, into: Array[Float]): Unit = {
    Propagate.start(block, step, own, from, until, into)
    product.addTo(into, matrix, step.weighted, from, until)
  }
}

/** Sums over out-edges.
  *
  * @param ready
  *   by partition: its sums for those of `Hubs.sources` that are in this block; null where there are none
  */
final private class OverOut(
    step: Propagate,
    block: Block,
    all: Array[Block],
    rows: Array[Rows],
    ready: Array[Parcel]
) extends RowReader {
  private val own = rows(block.partition)
  private val product = new SparseProduct(Array(own.values), Array(0, block.count), own.width)
  private val halos = all.zip(rows).map { case (other, part) =>
    new HaloSums(step, block, other, part, Option(ready(other.partition)).map(_.values).orNull)
  }

  override def width: Int = own.width
  override def count: Int = step.sums(block)

  override def read(from: Int, until: Int, into: Array[Float]): Unit = {
    Propagate.start(block, step, own, from, until, into)
    product.addTo(into, step.transpose(block), step.weighted, from, until)
    for (halo <- halos) halo.addTo(into, from, until)
  }
}

/** The sums that another partition has for vertices of a block.
  *
  * @param rows
  *   of that partition
  * @param done
  *   its sums for those of `Hubs.sources` that are in this block; null where there are none
  */
final private class HaloSums(step: Propagate, block: Block, other: Block, rows: Rows, done: Array[Float]) {
  private val width = rows.width
  private val product = new SparseProduct(Array(rows.values), Array(0, other.count), width)
  private val sum = new Array[Float](width)

  /** Adds those for rows `from until until`, row by row: each sum is finished before it is added. */
  def addTo(into: Array[Float], from: Int, until: Int): Unit = {
    val targets = block.send(other.partition)
    val matrix = step.transpose(other)
    val first = other.haloStart(block.partition)
    val large = if (done == null) Array.emptyIntArray else other.hubs.sources(block.partition)
    var i = place(targets, from)
    var next = place(large, i)
    while (i < targets.length && targets(i) < until) {
      if (next < large.length && large(next) == i) {
        AddRows.one(into, (targets(i) - from) * width, done, next * width, width)
        next += 1
      } else {
        util.Arrays.fill(sum, 0f)
        product.addTo(sum, matrix, step.weighted, first + i, first + i + 1)
        AddRows.one(into, (targets(i) - from) * width, sum, 0, width)
      }
      i += 1
    }
  }

  /** The first place in ascending numbers that is not below `least`. */
  private def place(ascending: Array[Int], least: Int): Int = {
    val found = util.Arrays.binarySearch(ascending, least)
    if (found >= 0) found else -found - 1
  }
}
