package lotan

import scala.reflect.ClassTag

import org.apache.spark.{OneToOneDependency, Partition, TaskContext}
import org.apache.spark.rdd.RDD

/** The elements of the same partition of several RDDs, side by side: any number of them, each partition having one element.
  *
  * @param later
  *   places of those that are not computed yet
  * @param delayed
  *   what stands for such an element, given how to compute it within the task
  */
final private class SideBySide[T: ClassTag](
    parents: Seq[RDD[T]],
    later: Set[Int],
    delayed: (() => T) => T
) extends RDD[Array[T]](parents.head.sparkContext, parents.map(new OneToOneDependency(_))) {
  require(
    parents.forall(_.getNumPartitions == parents.head.getNumPartitions),
    s"columns of ${parents.map(_.getNumPartitions).mkString(", ")} partitions side by side"
  )

  override protected def getPartitions: Array[Partition] =
    Array.tabulate[Partition](parents.head.getNumPartitions)(SideBySidePartition(_, parents.map(_.partitions)))

  override def compute(split: Partition, context: TaskContext): Iterator[Array[T]] = {
    val places = split.asInstanceOf[SideBySidePartition].places(split.index)
    val found = new Array[T](places.length)
    for (i <- places.indices) {
      val compute = () => element(i, places(i), context)
      found(i) = if (later(i)) delayed(compute) else compute()
    }
    Iterator.single(found)
  }

  private def element(parent: Int, place: Partition, context: TaskContext): T =
    OneElement.read(dependencies(parent).rdd.asInstanceOf[RDD[T]], place, context)
}

final private case class SideBySidePartition(index: Int, partitions: Seq[Array[Partition]]) extends Partition {
  def places(index: Int): Seq[Partition] = partitions.map(_(index))
}
