package lotan

import org.apache.spark.sql.functions.{lit, pmod, xxhash64}
import org.apache.spark.unsafe.types.UTF8String
import org.scalatest.funsuite.AnyFunSuite

class PlacementSuite extends AnyFunSuite with LocalSpark {
  import spark.implicits._

  private val longs = Seq(0L, 1L, -1L, 42L, Long.MaxValue, Long.MinValue, 1L << 40)
  private val texts = Seq("", "a", "vertex-17", "Zürich", "x" * 100)

  for (partitions <- Seq(1, 2, 3, 7)) {
    test(s"a vertex is where Spark SQL puts it: $partitions partitions") {
      val placement = Placement(partitions)
      val ofLongs = longs.toDF("id").select(pmod(xxhash64($"id"), lit(partitions))).as[Long].collect()
      assert(longs.map(placement.of(_).toLong) == ofLongs.toSeq)
      val ofTexts = texts.toDF("id").select(pmod(xxhash64($"id"), lit(partitions))).as[Long].collect()
      assert(texts.map(text => placement.of(UTF8String.fromString(text)).toLong) == ofTexts.toSeq)
    }
  }

  test("keys are those of the Python side") {
    assert(Seq(0L, 1L).map(Placement.key(_)) == Seq(-5252525462095825812L, -7001672635703045582L))
  }

  test("no partitions are refused") {
    assert(intercept[IllegalArgumentException](Placement(0)).getMessage.contains("0 partitions"))
  }
}
