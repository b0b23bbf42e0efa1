package lotan.messenger

/** The Dealers of this JVM. */
object Dealers extends DealerPool(Sockets.connect) {

  /** Closes a run's Dealers, and ends ZeroMQ's threads if no run is left. */
  override def close(run: String): Unit = {
    super.close(run)
    Sockets.closeUnused()
  }
}
