package lotan

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.expressions.XXH64

/** Row keys of edges, by which random numbers are drawn: the same on every engine (`lotan/row_keys.py`).
  *
  * An edge's key is Spark SQL's `xxhash64(source key, destination key, occurrence)`; the occurrence numbers parallel edges from
  * 0, by weight.
  *
  * @param edges
  *   whose edges
  */
final case class EdgeKeys(edges: EdgeSet) {

  /** The key of every edge. They are the same in every epoch: the caller persists them, and the blocks are persisted already. */
  def apply(blocks: RDD[Block], shared: Boolean): RDD[Array[Long]] =
    blocks.zipPartitions(SourceRows(blocks, blocks.map(EdgeKeys.asRows), shared)) { (ofBlock, ofSources) =>
      val block = ofBlock.next()
      val sources = ofSources.next()
      Iterator.single(keys(block, Array.tabulate(block.sources)(EdgeKeys.fromRow(sources, _))))
    }

  private def keys(block: Block, sourceKeys: Array[Long]): Array[Long] = {
    val order = block.edges(edges).order
    val found = new Array[Long](order.edges)
    var occurrence = 0L
    for (edge <- found.indices) {
      val row = order.destinations(edge)
      val source = order.matrix.columns(edge)
      val again = edge > order.matrix.indptr(row) && order.matrix.columns(edge - 1) == source
      occurrence = if (again) occurrence + 1 else 0
      val ofSource = XXH64.hashLong(sourceKeys(source), EdgeKeys.Seed)
      found(edge) = XXH64.hashLong(occurrence, XXH64.hashLong(block.ids.key(row), ofSource))
    }
    found
  }
}

private object EdgeKeys {
  private val Seed = 42L // Spark SQL's
  private val Parts = 4 // of 16 bits: whole numbers that a float holds exactly, so that keys travel as rows do

  def asRows(block: Block): Rows = {
    val rows = Rows.zeros(block.count, Parts)
    for (row <- 0 until block.count; part <- 0 until Parts)
      rows.values(row * Parts + part) = (block.ids.key(row) >>> (16 * part) & 0xffff).toFloat
    rows
  }

  def fromRow(rows: SourceRows, source: Int): Long =
    (0 until Parts).map(part => rows.array(source)(rows.offset(source) + part).toLong << (16 * part)).reduce(_ | _)
}
