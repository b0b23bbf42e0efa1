package lotan

import scala.collection.mutable

import org.apache.spark.SparkEnv
import org.apache.spark.storage.RDDBlockId

/** Frees columns in the middle of a pass, when all partitions of all their readers are done.
  *
  * A pass is one job, at whose end Spark would free them. What is asked for all the same, by a task that runs again, Spark
  * computes again. For a session in one JVM: elsewhere nobody knows of all partitions.
  */
private object SpentColumns {
  private val done =
    mutable.Map.empty[(String, Int), mutable.Set[(String, String, Int)]] // run, RDD: stage, mode, partition

  /** Notes that a partition has been piped. */
  def piped(step: PipeStep, partition: Int, partitions: Int): Unit = {
    val free = synchronized {
      step.spent.filter { one =>
        val readers = done.getOrElseUpdate((step.run, one.rdd), mutable.Set.empty)
        readers += ((step.stage, step.mode, partition))
        readers.size == one.readers * partitions && done.remove((step.run, one.rdd)).isDefined
      }
    }
    for (one <- free; place <- 0 until partitions) SparkEnv.get.blockManager.removeBlock(RDDBlockId(one.rdd, place))
  }

  /** Forgets the columns of a run's passes that failed. */
  def forget(run: String): Unit = synchronized { val _ = done.filterInPlace { case ((of, _), _) => of != run } }
}
