package lotan

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.expressions.XXH64

/** Row keys of edges, by which random numbers are drawn: the same on every engine (`lotan/graph/row_keys.py`).
  *
  * An edge's key is Spark SQL's `xxhash64(source key, destination key, occurrence)`; the occurrence numbers parallel edges from
  * 0, by weight.
  *
  * @param edges
  *   the edge set
  */
final case class EdgeKeys(edges: EdgeSet) {

  /** The key of every edge, in the order of edge columns. The same in every epoch: the caller persists them. */
  def apply(blocks: RDD[Block]): RDD[Array[Long]] = blocks.map(of)

  /** Returns the keys of one block's edges. */
  def of(block: Block): Array[Long] = {
    val order = block.edges(edges).order
    val found = new Array[Long](order.edges)
    var occurrence = 0L
    for (edge <- found.indices) {
      val row = order.destinations(edge)
      val source = order.matrix.columns(edge)
      val again = edge > order.matrix.indptr(row) && order.matrix.columns(edge - 1) == source
      occurrence = if (again) occurrence + 1 else 0
      val ofSource = XXH64.hashLong(block.sourceKeys(source), EdgeKeys.Seed)
      found(edge) = XXH64.hashLong(occurrence, XXH64.hashLong(block.sourceKeys(row), ofSource))
    }
    found
  }
}

private object EdgeKeys {
  private val Seed = 42L // Spark SQL's
}
