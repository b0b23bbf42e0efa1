package lotan

import org.apache.spark.rdd.RDD

/** The part of Propagate that treats hubs (`Hubs`). It takes one exchange of a row for each hub and partition.
  *
  * @param step
  *   the edges along which it runs
  */
final private case class HubSums(step: Propagate) {

  /** Adds to the sums along the blocks' rests, in place, those along the edges to hubs that other partitions have. */
  def added(blocks: RDD[Block], column: RDD[Rows], sums: RDD[Rows]): RDD[Rows] =
    if (step.reverse)
      blocks.zipPartitions(sums, hubRows(blocks, column)) { (ofBlock, ofSums, ofRows) =>
        val (block, out) = (ofBlock.next(), ofSums.next())
        val rows = ofRows.next().map(parcel => if (parcel == null) Parcel.NoValues else parcel.values)
        new ToSources(step, block, out, new SparseProduct(rows, block.hubs.start, out.width)).addTo(out.values)
        Iterator.single(out)
      }
    else
      blocks.zipPartitions(sums, partSums(blocks, column)) { (ofBlock, ofSums, ofParts) =>
        val (block, out) = (ofBlock.next(), ofSums.next())
        new ToHubs(block, out, ofParts.next()).addTo(out.values)
        Iterator.single(out)
      }

  /** The same where all partitions are in one JVM, with sums computed as they are read. */
  def asRead(blocks: RDD[Block], column: RDD[Rows], sums: RDD[RowReader]): RDD[RowReader] =
    if (step.reverse)
      sums.zipPartitions(blocks, new Everyone(blocks), new Everyone(column)) { (ofSums, ofBlock, ofBlocks, ofRows) =>
        val (block, inner) = (ofBlock.next(), ofSums.next())
        val picks = Some(ofBlocks.next().map(_.hubs.own))
        val product = new SparseProduct(ofRows.next().map(_.values), block.hubs.start, inner.width, picks)
        Iterator.single(new ToSources(step, block, inner, product))
      }
    else
      sums.zipPartitions(blocks, partSums(blocks, column)) { (ofSums, ofBlock, ofParts) =>
        Iterator.single(new ToHubs(ofBlock.next(), ofSums.next(), ofParts.next()))
      }

  /** For sources with many out-edges in a partition, the sums there: in the order of `Hubs.sources`, by sender. */
  def sourceSums(blocks: RDD[Block], column: RDD[Rows]): RDD[Array[Parcel]] = exchange(blocks, column) {
    (block, rows) =>
      val (rest, places) = (block.withoutHubs, block.hubs.sources)
      val matrix = rest.edges(step.edges).reverse
      (0 until block.partitions).filter(places(_).nonEmpty).map { owner =>
        owner -> sums(block, rows, matrix, places(owner).map(rest.haloStart(owner) + _))
      }
  }

  /** For the hubs of a block, the sums over their sources elsewhere, by sender. */
  private def partSums(blocks: RDD[Block], column: RDD[Rows]) = exchange(blocks, column) { (block, rows) =>
    val start = block.hubs.start
    (0 until block.partitions).filter(owner => start(owner) < start(owner + 1)).map { owner =>
      owner -> sums(block, rows, block.hubs.forward, Array.range(start(owner), start(owner + 1)))
    }
  }

  /** The rows of hubs, to whoever has edges to them, by sender. */
  private def hubRows(blocks: RDD[Block], column: RDD[Rows]) = exchange(blocks, column) { (block, rows) =>
    if (block.hubs.own.isEmpty) Nil
    else
      (0 until block.partitions).filter(sender => block.haloStart(sender) < block.haloStart(sender + 1)).map { sender =>
        sender -> new Parcel(block.partition, Nil, rows.width, rows.values, Some(block.hubs.own))
      }
  }

  private def sums(block: Block, rows: Rows, matrix: Csr, of: Array[Int]): Parcel = {
    val product = new SparseProduct(Array(rows.values), Array(0, block.count), rows.width)
    val out = of.map { row =>
      val sum = new Array[Float](rows.width)
      product.addTo(sum, matrix, step.weighted, row, row + 1)
      sum
    }
    new Parcel(block.partition, Nil, rows.width, Array.concat(out.toSeq: _*))
  }

  private def exchange(blocks: RDD[Block], column: RDD[Rows])(parcels: (Block, Rows) => Seq[(Int, Parcel)]) = {
    val packed = blocks.zipPartitions(column) { (ofBlock, ofColumn) =>
      val (block, rows) = (ofBlock.next(), ofColumn.next())
      Propagate.check(block, rows)
      parcels(block, rows).iterator
    }
    Exchange(packed, blocks.getNumPartitions)
  }
}

/** Sums that are not complete yet. */
abstract private class Completed(inner: RowReader) extends RowReader {
  override def width: Int = inner.width
  override def count: Int = inner.count

  override def read(from: Int, until: Int, into: Array[Float]): Unit = {
    inner.read(from, until, into)
    add(from, until, into)
  }

  /** Adds the sums that all rows lack. */
  def addTo(out: Array[Float]): Unit = add(0, count, out)

  /** Adds the sums that rows `from until until` lack. Row `from` comes first. */
  protected def add(from: Int, until: Int, into: Array[Float]): Unit
}

/** Hubs lack the sums over sources elsewhere. */
final private class ToHubs(block: Block, inner: RowReader, parts: Array[Parcel]) extends Completed(inner) {

  override protected def add(from: Int, until: Int, into: Array[Float]): Unit =
    for ((hub, i) <- block.hubs.own.zipWithIndex if hub >= from && hub < until; part <- parts if part != null)
      AddRows.one(into, (hub - from) * width, part.values, i * width, width)
}

/** Sources lack what hubs elsewhere have for them. */
final private class ToSources(step: Propagate, block: Block, inner: RowReader, product: SparseProduct)
    extends Completed(inner) {

  override protected def add(from: Int, until: Int, into: Array[Float]): Unit =
    if (block.hubs.reverse.edges > 0) product.addTo(into, block.hubs.reverse, step.weighted, from, until)
}
