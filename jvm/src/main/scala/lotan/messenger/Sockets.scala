package lotan.messenger

import scala.collection.mutable

import org.zeromq.ZContext

/** The ZeroMQ transport: all sockets of this JVM, in one context that exists as long as it is needed. */
private[messenger] object Sockets {
  private var context = Option.empty[ZContext]
  private val links = mutable.Set.empty[SocketLink]

  /** Returns a link to the Router at an endpoint. Connecting goes on in the background; `Joining.join` waits for its end. */
  def connect(endpoint: Endpoint, identity: Array[Byte], settings: Settings): Link = synchronized {
    links.filterInPlace(!_.ended)
    if (context.isEmpty) context = Some(new ZContext)
    val link = new SocketLink(context.get, endpoint, identity, settings)
    links += link
    link
  }

  /** True if ZeroMQ's threads are running. */
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
