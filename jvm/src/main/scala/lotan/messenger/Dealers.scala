package lotan.messenger

/** This JVM's Dealers. */
object Dealers extends DealerPool(Sockets.connect) {

  /** As the pool does, and ends ZeroMQ's threads if no run is left. */
  override def close(run: String): Unit = {
    super.close(run)
    Sockets.closeUnused()
  }
}
