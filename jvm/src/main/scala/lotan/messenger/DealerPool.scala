package lotan.messenger

import java.util.concurrent.{Executors, ScheduledFuture, TimeUnit}

import scala.collection.mutable

/** Dealers that stay connected from task to task; each serves one task at a time.
  *
  * A Dealer belongs to a run, because several runs may train at once. The driver's JVM is told when a run ends. An executor's
  * JVM is not told, and closes Dealers that have had nothing to do for `IdleSeconds`.
  */
class DealerPool private[messenger] (connect: Dealer.Connect) {
  import DealerPool._

  private val idle = mutable.Map.empty[Key, List[Idle]]
  private val ended = mutable.LinkedHashSet.empty[String]
  private var made = 0

  private lazy val sweeper: ScheduledFuture[_] = Executors
    .newSingleThreadScheduledExecutor { task =>
      val thread = new Thread(task, "lotan-idle-dealers")
      thread.setDaemon(true)
      thread
    }
    .scheduleWithFixedDelay(() => sweep(IdleSeconds), IdleSeconds, IdleSeconds, TimeUnit.SECONDS)

  /** Pipes a partition through an idle Dealer of its run, or a new one: see `Dealer.pipe`. It is idle again when the iterator has
    * ended, which a task makes sure of by closing it.
    */
  def pipe(
      endpoint: Endpoint,
      settings: Settings,
      job: PipeJob,
      chunks: Iterator[OutgoingChunk],
      cancelled: () => Boolean = () => false
  ): Piping = {
    val key = Key(job.run, endpoint, settings)
    val dealer = borrow(key)
    dealer.pipe(job, chunks, cancelled).onEnd(() => giveBack(key, dealer))
  }

  private def borrow(key: Key): Dealer = synchronized {
    idle.getOrElse(key, Nil) match {
      case first :: others =>
        idle(key) = others
        first.dealer
      case Nil =>
        made += 1
        new Dealer(key.endpoint, key.settings, s"jvm ${ProcessHandle.current.pid}-$made", connect)
    }
  }

  private def giveBack(key: Key, dealer: Dealer): Unit = synchronized {
    if (ended(key.run)) dealer.close()
    else {
      val _ = sweeper
      idle(key) = Idle(dealer, System.nanoTime()) :: idle.getOrElse(key, Nil)
    }
  }

  /** Disconnects the Dealers that have been idle for a number of seconds. */
  private[messenger] def sweep(seconds: Long): Unit = synchronized {
    val now = System.nanoTime()
    for (key <- idle.keys.toSeq) {
      val (old, recent) = idle(key).partition(now - _.since >= TimeUnit.SECONDS.toNanos(seconds))
      old.foreach(_.dealer.close())
      if (recent.isEmpty) idle -= key else idle(key) = recent
    }
  }

  /** Returns the number of idle Dealers of all runs. */
  private[messenger] def idleCount: Int = synchronized(idle.values.map(_.length).sum)

  /** Disconnects those of a run, when it has ended; those that still pipe follow when their tasks end. Others do not notice. */
  def close(run: String): Unit = synchronized {
    ended += run
    if (ended.size > EndedRuns) ended -= ended.head
    for (key <- idle.keys.toSeq if key.run == run; one <- idle.remove(key).get) one.dealer.close()
  }
}

private object DealerPool {
  private val IdleSeconds = 60L
  private val EndedRuns = 4096 // remembered; a task of an older one has long been killed

  final private case class Key(run: String, endpoint: Endpoint, settings: Settings)

  /** An idle Dealer, and the time in nanoseconds since when it is idle. */
  final private case class Idle(dealer: Dealer, since: Long)
}
