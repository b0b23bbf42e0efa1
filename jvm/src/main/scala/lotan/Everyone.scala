package lotan

import scala.reflect.ClassTag

import org.apache.spark.{NarrowDependency, Partition, TaskContext}
import org.apache.spark.rdd.RDD

/** In every partition, the one element of each partition of `parent`: an exchange by reference, for a session in one JVM.
  *
  * `parent` must be persisted or as cheap to compute. Where it is not computed yet, each task computes its own partition first,
  * and then finds those of the others: Spark lets a task that asks for a block wait while another task computes it. A partition
  * that no task has begun is computed by whoever asks first, so tasks beyond the number of cores do not lock each other out.
  * Tasks that run together begin with different ones, so that one seldom waits for what another one computes. What Spark had to put on the disk is in the heap once at a time, however many tasks read it (see `OneElement`).
  */
final private class Everyone[T: ClassTag](parent: RDD[T])
    extends RDD[Array[T]](
      parent.sparkContext,
      Seq(new NarrowDependency(parent) {
        override def getParents(partition: Int): Seq[Int] = parent.partitions.indices
      })
    ) {
  private val strides = math.max(1, parent.sparkContext.defaultParallelism)

  override protected def getPartitions: Array[Partition] =
    Array.tabulate[Partition](parent.getNumPartitions)(EveryonePartition(_, parent.partitions))

  override def compute(split: Partition, context: TaskContext): Iterator[Array[T]] = {
    val parents = split.asInstanceOf[EveryonePartition].parents
    val found = new Array[T](parents.length)
    for (from <- Everyone.order(split.index, parents.length, strides))
      found(from) = OneElement.of(firstParent[T], parents(from), context)
    Iterator.single(found)
  }
}

final private case class EveryonePartition(index: Int, parents: Array[Partition]) extends Partition

private object Everyone {

  /** All partitions, from `first` on, in strides: tasks that run together go through different ones. */
  def order(first: Int, count: Int, strides: Int): Seq[Int] =
    for (offset <- 0 until math.min(strides, count); step <- offset until count by strides) yield (first + step) % count
}
