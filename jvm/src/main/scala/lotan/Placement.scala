package lotan

import org.apache.spark.Partitioner
import org.apache.spark.sql.catalyst.expressions.XXH64
import org.apache.spark.unsafe.types.UTF8String

/** The partition of a vertex: `pmod(xxhash64(id), partitions)`, as Spark SQL computes it. All engines use the same placement.
  *
  * As a Partitioner it sends a record to the partition whose number is the record's key.
  *
  * @param partitions
  *   how many there are
  */
final case class Placement(partitions: Int) extends Partitioner {
  require(partitions > 0, s"$partitions partitions; expected at least 1")

  override def numPartitions: Int = partitions

  override def getPartition(key: Any): Int = key.asInstanceOf[Int]

  def of(id: Long): Int = Math.floorMod(Placement.key(id), partitions.toLong).toInt

  def of(id: UTF8String): Int = Math.floorMod(Placement.key(id), partitions.toLong).toInt
}

object Placement {
  private val Seed = 42L // Spark SQL's

  /** The row key of a vertex: Spark SQL's `xxhash64(id)`. */
  def key(id: Long): Long = XXH64.hashLong(id, Seed)

  def key(id: UTF8String): Long = XXH64.hashUTF8String(id, Seed)
}
