package lotan

import org.apache.spark.SparkException
import org.apache.spark.rdd.RDD
import org.scalatest.funsuite.AnyFunSuite

/** Both ways of writing parcels: few, each written once, and more. */
class ExchangeSuite extends AnyFunSuite with LocalSpark {

  for (partitions <- Seq(1, 3, Exchange.WrittenOnce, Exchange.WrittenOnce + 1)) {
    test(s"parcels come by sender, in $partitions partitions") {
      val received = Exchange(parcels(partitions, repeated = 1), partitions).collect()
      for (target <- 0 until partitions; sender <- 0 until partitions) {
        val parcel = received(target)(sender)
        if (sender < target) assert(parcel == null)
        else assert(parcel.values.toSeq == Seq(1f + sender, target.toFloat))
      }
    }
  }

  for (partitions <- Seq(2, Exchange.WrittenOnce + 1)) {
    test(s"two parcels for one target are refused, in $partitions partitions") {
      val error = intercept[SparkException](Exchange(parcels(partitions, repeated = 2), partitions).collect())
      assert(error.getMessage.contains("two parcels from partition"))
    }
  }

  /** From each partition to those up to itself. The rows are picked from an array, as a halo's are. */
  private def parcels(partitions: Int, repeated: Int): RDD[(Int, Parcel)] =
    spark.sparkContext.parallelize(0 until partitions, partitions).flatMap { sender =>
      for (target <- 0 to sender; _ <- 0 until repeated) yield {
        val values = Array(-1f, -1f, 1f + sender, target.toFloat)
        target -> new Parcel(sender, Nil, 2, values, Some(Array(1)))
      }
    }
}
