package lotan

import java.lang.ref.{ReferenceQueue, WeakReference}
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.{Partition, SparkEnv, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.storage.RDDBlockId

/** The one element of a partition: the same object for all tasks that read it at a time.
  *
  * What lies in Spark's memory is one object anyway. What had to go to the disk Spark would read for each task anew, and a
  * column that two tasks read whole would take twice the room that there was not enough of.
  */
private object OneElement {
  private type Key = (String, Int, Int) // application, RDD, partition

  private val alive = new ConcurrentHashMap[Key, Held]
  private val locks = new ConcurrentHashMap[Key, AnyRef] // of what is being read
  private val dead = new ReferenceQueue[AnyRef]

  final private class Held(key: Key, element: AnyRef) extends WeakReference[AnyRef](element, dead) {
    def forget(): Unit = { val _ = alive.remove(key, this) }
  }

  /** Asks Spark for the element, unless another task has read it from the disk or is doing so.
    *
    * Who waits here for an element waits for what comes before it in the lineage, never the other way round: as for Spark's own
    * locks on blocks, no two tasks wait for each other.
    */
  def of[T](rdd: RDD[T], partition: Partition, context: TaskContext): T = {
    val env = SparkEnv.get
    val key = (env.conf.get("spark.app.id", ""), rdd.id, partition.index)
    val inMemory = env.blockManager.getStatus(RDDBlockId(rdd.id, partition.index)).exists(_.memSize > 0)
    if (inMemory) read(rdd, partition, context)
    else once(key, read(rdd, partition, context).asInstanceOf[AnyRef]).asInstanceOf[T]
  }

  private def once(key: Key, read: => AnyRef): AnyRef = {
    val reading = new Object
    val lock = Option(locks.putIfAbsent(key, reading)).getOrElse(reading)
    try lock.synchronized(held(key).getOrElse(keep(key, read)))
    finally { val _ = locks.remove(key, lock) }
  }

  private def held(key: Key): Option[AnyRef] = Option(alive.get(key)).flatMap(one => Option(one.get))

  private def keep(key: Key, found: AnyRef): AnyRef = {
    forgetDead()
    alive.put(key, new Held(key, found))
    found
  }

  /** Asks Spark for the element, even if other tasks read it. */
  def read[T](rdd: RDD[T], partition: Partition, context: TaskContext): T = {
    val elements = rdd.iterator(partition, context)
    val found = elements.next()
    // the end also frees Spark's lock on the block
    require(!elements.hasNext, s"partition ${partition.index} has more than one element")
    found
  }

  private def forgetDead(): Unit = {
    var one = dead.poll()
    while (one != null) {
      one.asInstanceOf[Held].forget()
      one = dead.poll()
    }
  }
}
