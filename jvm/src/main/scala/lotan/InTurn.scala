package lotan

import scala.reflect.ClassTag

import org.apache.spark.{NarrowDependency, Partition, SparkEnv, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.storage.{RDDBlockId, StorageLevel}

/** In every partition, a way to the one element of each partition of `parent`: as `Everyone`, for who holds one at a time.
  *
  * The function is for its own task. Partitions of a persisted parent that are not computed yet are computed first, so that the
  * task holds none of the others meanwhile. Tasks that run together begin with different ones.
  */
final private class InTurn[T: ClassTag](parent: RDD[T])
    extends RDD[Int => T](
      parent.sparkContext,
      Seq(new NarrowDependency(parent) {
        override def getParents(partition: Int): Seq[Int] = parent.partitions.indices
      })
    ) {
  private val strides = math.max(1, parent.sparkContext.defaultParallelism)

  override protected def getPartitions: Array[Partition] =
    Array.tabulate[Partition](parent.getNumPartitions)(EveryonePartition(_, parent.partitions))

  override def compute(split: Partition, context: TaskContext): Iterator[Int => T] = {
    val parents = split.asInstanceOf[EveryonePartition].parents
    if (firstParent[T].getStorageLevel != StorageLevel.NONE)
      for (from <- InTurn.order(split.index, parents.length, strides) if !isComputed(from)) {
        val _ = OneElement.of(firstParent[T], parents(from), context)
      }
    Iterator.single((from: Int) => OneElement.of(firstParent[T], parents(from), context))
  }

  private def isComputed(from: Int): Boolean =
    SparkEnv.get.blockManager.getStatus(RDDBlockId(firstParent[T].id, from)).exists(_.storageLevel.isValid)
}

private object InTurn {

  /** All partitions, from `first` on, in strides: tasks that run together go through different ones. */
  def order(first: Int, count: Int, strides: Int): Seq[Int] =
    for (offset <- 0 until math.min(strides, count); step <- offset until count by strides) yield (first + step) % count
}
