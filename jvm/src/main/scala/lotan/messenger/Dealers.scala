package lotan.messenger

import scala.collection.mutable

/** This JVM's Dealers. They stay connected from task to task; each serves one task at a time. */
object Dealers {
  private type Key = (Endpoint, Settings)
  private val idle = mutable.Map.empty[Key, List[Dealer]]
  private var made = 0

  /** Pipes a partition through an idle Dealer, or a new one: see `Dealer.pipe`. It is idle again when the iterator has ended,
    * which a task makes sure of by closing it.
    */
  def pipe(
      endpoint: Endpoint,
      settings: Settings,
      job: PipeJob,
      chunks: Iterator[OutgoingChunk],
      cancelled: () => Boolean = () => false
  ): Piping = {
    val dealer = borrow(endpoint, settings)
    dealer.pipe(job, chunks, cancelled).onEnd(() => giveBack(endpoint, settings, dealer))
  }

  /** An idle Dealer for that endpoint, or a new one: nobody else has it until `giveBack`.
    *
    * Idle Dealers of other endpoints are closed: their Router has most likely ended with the session that started it.
    */
  def borrow(endpoint: Endpoint, settings: Settings): Dealer = synchronized {
    val key = (endpoint, settings)
    for (other <- idle.keys.toSeq if other != key) idle.remove(other).get.foreach(_.close())
    idle.getOrElse(key, Nil) match {
      case dealer :: others =>
        idle(key) = others
        dealer
      case Nil =>
        made += 1
        new Dealer(endpoint, settings, s"jvm ${ProcessHandle.current.pid}-$made")
    }
  }

  def giveBack(endpoint: Endpoint, settings: Settings, dealer: Dealer): Unit = synchronized {
    val key = (endpoint, settings)
    idle(key) = dealer :: idle.getOrElse(key, Nil)
  }

  /** Disconnects all, and ends ZeroMQ's threads: when the session ends. A task that still pipes fails. */
  def closeAll(): Unit = synchronized {
    for (dealers <- idle.values; dealer <- dealers) dealer.close()
    idle.clear()
    Sockets.closeAll()
  }
}
