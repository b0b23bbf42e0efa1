package lotan.messenger

import scala.collection.mutable

import org.zeromq.ZContext

/** The ZeroMQ transport: all sockets of this JVM, in one context that is there as long as any was needed. */
private[messenger] object Sockets {
  private var context = Option.empty[ZContext]
  private val links = mutable.Set.empty[SocketLink]

  /** A link to the Router at an endpoint. Connecting goes on in the background: see `Joining.join`. */
  def connect(endpoint: Endpoint, identity: Array[Byte], settings: Settings): Link = synchronized {
    links.filterInPlace(!_.ended)
    if (context.isEmpty) context = Some(new ZContext)
    val link = new SocketLink(context.get, endpoint, identity, settings)
    links += link
    link
  }

  /** Whether ZeroMQ's threads are there. */
  def running: Boolean = synchronized(context.isDefined)

  /** Waits for links that were closed, and ends ZeroMQ's threads if no other is left. */
  def closeUnused(): Unit = {
    for (link <- synchronized(links.toSeq) if link.isClosing) link.awaitEnd()
    synchronized {
      links.filterInPlace(!_.ended)
      if (links.isEmpty) {
        context.foreach(_.close())
        context = None
      }
    }
  }
}
