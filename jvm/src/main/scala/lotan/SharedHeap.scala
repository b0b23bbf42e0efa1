package lotan

import java.util

import org.apache.spark.rdd.RDD

/** Propagate where all partitions are in one JVM: rows are read where they lie, and nothing is packed, written or copied.
  *
  * Adds up in the same order as the form with a shuffle does, so that results have the same bits.
  */
final private case class SharedHeap(step: Propagate) {

  /** The sums, not yet computed: for whoever reads each row once. `column` is persisted by the caller. */
  def sums(blocks: RDD[Block], column: RDD[Rows]): RDD[RowReader] =
    blocks.zipPartitions(new Everyone(blocks), new Everyone(column)) { (ofBlock, ofBlocks, ofRows) =>
      val block = ofBlock.next() // not by the task's number: a task may compute partitions other than its own
      val all = ofBlocks.next()
      val rows = ofRows.next()
      for ((one, own) <- all.zip(rows)) Propagate.check(one, own)
      Iterator.single(if (step.reverse) new OverOut(step, block, all, rows) else new OverIn(step, block, all, rows))
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
  override def count: Int = block.count

  override def read(from: Int, until: Int, into: Array[Float]): Unit = {
    Propagate.start(block, step, own, from, until, into)
    product.addTo(into, matrix, step.weighted, from, until)
  }
}

/** Sums over out-edges. */
final private class OverOut(step: Propagate, block: Block, all: Array[Block], rows: Array[Rows]) extends RowReader {
  private val own = rows(block.partition)
  private val products = rows.zip(all).map { case (part, other) =>
    new SparseProduct(Array(part.values), Array(0, other.count), width)
  }
  private val sum = new Array[Float](width)

  override def width: Int = own.width
  override def count: Int = block.count

  override def read(from: Int, until: Int, into: Array[Float]): Unit = {
    Propagate.start(block, step, own, from, until, into)
    products(block.partition).addTo(into, block.edges(step.edges).reverse, step.weighted, from, until)
    for (other <- all) addHalo(other, from, until, into)
  }

  /** Adds the sums that `other` has for vertices of `block`, row by row: each sum is finished before it is added. */
  private def addHalo(other: Block, from: Int, until: Int, into: Array[Float]): Unit = {
    val targets = block.send(other.partition)
    val matrix = other.edges(step.edges).reverse
    val first = other.haloStart(block.partition)
    var i = place(targets, from)
    while (i < targets.length && targets(i) < until) {
      util.Arrays.fill(sum, 0f)
      products(other.partition).addTo(sum, matrix, step.weighted, first + i, first + i + 1)
      AddRows.one(into, (targets(i) - from) * width, sum, 0, width)
      i += 1
    }
  }

  /** The first place in ascending numbers that is not below `least`. */
  private def place(ascending: Array[Int], least: Int): Int = {
    val found = util.Arrays.binarySearch(ascending, least)
    if (found >= 0) found else -found - 1
  }
}
