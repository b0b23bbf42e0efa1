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

  /** Closes all sockets, and ends ZeroMQ's threads. Those who still use one find it closed. */
  def closeAll(): Unit = synchronized {
    for (link <- links) link.close()
    for (link <- links) link.awaitEnd()
    links.clear()
    context.foreach(_.close())
    context = None
  }
}
