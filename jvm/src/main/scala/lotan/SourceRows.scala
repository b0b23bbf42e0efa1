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

  /** Where in that array the row begins; below 0 for a source that has no row here. */
  def offset(source: Int): Int = placeOf(source) * width
}

object SourceRows {

  /** For every block. The column is read by several tasks: the caller persists it.
    *
    * @param shared
    *   true if all partitions are in one JVM, so that rows need not travel
    * @param within
    *   level up to which the edges end; other sources have no rows here
    */
  def apply(blocks: RDD[Block], column: RDD[Rows], shared: Boolean, within: Int = Block.All): RDD[SourceRows] = {
    val read = Block.farther(within)
    if (shared)
      blocks.zipPartitions(new Everyone(blocks), new Everyone(column)) { (ofBlock, ofBlocks, ofRows) =>
        val (block, all, rows) = (ofBlock.next(), ofBlocks.next(), ofRows.next())
        for ((one, its) <- all.zip(rows)) Propagate.check(one, its, read)
        // the halo of an owner, as rows of that owner
        val picks = all.map(owner => Exchange.below(owner.send(block.partition), owner.rows(read)))
        Iterator.single(found(block, rows, picks, block.rows(read)))
      }
    else
      blocks.zipPartitions(column, Exchange.halo(blocks, column, read)) { (ofBlock, ofColumn, ofHalo) =>
        val block = ofBlock.next()
        val own = ofColumn.next()
        val rows = ofHalo.next().map(values => new Rows(own.width, values))
        val picks = rows.map(part => Array.range(0, part.count))
        rows(block.partition) = own
        Iterator.single(found(block, rows, picks, block.rows(read)))
      }
  }

  private def found(block: Block, rows: Array[Rows], picks: Array[Array[Int]], own: Int): SourceRows = {
    val ownerOf = new Array[Int](block.sources)
    val placeOf = Array.fill(block.sources)(Absent)
    for (row <- 0 until own) {
      ownerOf(row) = block.partition
      placeOf(row) = row
    }
    for (owner <- 0 until block.partitions if owner != block.partition; i <- picks(owner).indices) {
      ownerOf(block.haloStart(owner) + i) = owner
      placeOf(block.haloStart(owner) + i) = picks(owner)(i)
    }
    new SourceRows(rows(block.partition).width, rows.map(_.values), ownerOf, placeOf)
  }

  private val Absent = -1 // no place in an array: who reads there all the same fails
}
