package lotan

import org.apache.spark.rdd.RDD

/** The rows of a column at the sources of a block's edges, in the block's numbering, wherever they lie.
  *
  * @param width
  *   numbers per row
  */
final class SourceRows private (
    val width: Int,
    arrays: Array[Array[Float]], // by owner
    ownerOf: Array[Int],
    placeOf: Array[Int]
) {

  /** The partition that a source belongs to. */
  def owner(source: Int): Int = ownerOf(source)

  /** The array that holds a source's row. */
  def array(source: Int): Array[Float] = arrays(ownerOf(source))

  /** Where in that array the row begins. */
  def offset(source: Int): Int = placeOf(source) * width
}

object SourceRows {

  /** For every block. The column is read by several tasks: the caller persists it.
    *
    * @param shared
    *   whether all partitions are in one JVM, so that rows need not travel
    */
  def apply(blocks: RDD[Block], column: RDD[Rows], shared: Boolean): RDD[SourceRows] =
    if (shared)
      blocks.zipPartitions(new Everyone(blocks), new Everyone(column)) { (ofBlock, ofBlocks, ofRows) =>
        val block = ofBlock.next()
        val picks = ofBlocks.next().map(_.send(block.partition)) // the halo of an owner, as rows of that owner
        Iterator.single(found(block, ofRows.next(), picks))
      }
    else
      blocks.zipPartitions(column, Exchange.halo(blocks, column)) { (ofBlock, ofColumn, ofHalo) =>
        val block = ofBlock.next()
        val own = ofColumn.next()
        val rows = ofHalo.next().map(values => new Rows(own.width, values))
        rows(block.partition) = own
        Iterator.single(found(block, rows, rows.map(part => Array.range(0, part.count))))
      }

  private def found(block: Block, rows: Array[Rows], picks: Array[Array[Int]]): SourceRows = {
    val ownerOf = new Array[Int](block.sources)
    val placeOf = new Array[Int](block.sources)
    Propagate.check(block, rows(block.partition))
    for (row <- 0 until block.count) {
      ownerOf(row) = block.partition
      placeOf(row) = row
    }
    for (owner <- 0 until block.partitions; i <- 0 until block.haloStart(owner + 1) - block.haloStart(owner)) {
      ownerOf(block.haloStart(owner) + i) = owner
      placeOf(block.haloStart(owner) + i) = picks(owner)(i)
    }
    new SourceRows(rows(block.partition).width, rows.map(_.values), ownerOf, placeOf)
  }
}
