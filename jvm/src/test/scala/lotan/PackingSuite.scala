package lotan

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeArrayData
import org.scalatest.funsuite.AnyFunSuite

/** Rows sorted into parcels: all of them, and few in hand. */
class PackingSuite extends AnyFunSuite {
  private val Width = 1000

  private def row(id: Int) =
    InternalRow(id.toLong, UnsafeArrayData.fromPrimitiveArray(Array.tabulate(Width)(i => id + i / 1024f)))

  for (partitions <- Seq(2, 256))
    test(s"every row arrives once, and no bucket holds more than its share: $partitions partitions") {
      val count = 9000
      val packing =
        new Packing(Iterator.range(0, count).map(row), partitions, new VertexBucket(text = false, Seq(true))) {
          override protected def target(row: InternalRow): Int = (row.getLong(0) % partitions).toInt
        }
      val share = math.max(4 << 10, (16 << 20) / partitions) // bytes
      val seen = new Array[Boolean](count)
      for ((to, parcel) <- packing) {
        val ids = parcel.ids.head.asInstanceOf[LongIds].values
        assert(ids.length <= 4096 && 4 * parcel.values.length < share + 4 * Width)
        for ((id, place) <- ids.zipWithIndex) {
          assert(id % partitions == to && !seen(id.toInt) && parcel.values(place * Width + 1) == id + 1 / 1024f)
          seen(id.toInt) = true
        }
      }
      assert(!seen.contains(false))
    }
}
