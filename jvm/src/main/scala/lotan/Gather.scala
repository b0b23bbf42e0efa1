package lotan

import org.apache.spark.rdd.RDD

/** The adjoint of Collect: it sums, for each vertex, the rows that were returned for it as a source of chunks.
  *
  * The chunks of a partition are summed before anything leaves it (`ContributionSums`), so that one row per halo vertex crosses a
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
    * @param sums
    *   the sums of each partition, by owner
    */
  def apply(blocks: RDD[Block], sums: RDD[Array[Rows]]): RDD[Rows] =
    blocks.zipPartitions(Exchange.partials(blocks, sums)) { (ofBlock, received) =>
      Iterator.single(add(ofBlock.next(), received.next()))
    }

  private def add(block: Block, received: Array[Parcel]): Rows = {
    val out = Rows.zeros(block.rows(made), width)
    Propagate.addPartials(out, block, received)
    out
  }
}
