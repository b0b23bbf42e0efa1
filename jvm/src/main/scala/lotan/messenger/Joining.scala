package lotan.messenger

import java.net.InetAddress
import java.nio.charset.StandardCharsets.UTF_8
import java.util.UUID

import scala.util.Try

/** The settings that the Router decides for all its peers.
  *
  * @param credits
  *   chunks that a Dealer may have in flight
  * @param missedHeartbeats
  *   a peer without a sign of life for more heartbeats in a row than this counts as lost
  */
final private[messenger] case class Welcome(credits: Int, heartbeatSeconds: Double, missedHeartbeats: Int)

/** The introduction of a Dealer to its Router: HELLO, and WELCOME or ERROR in answer. */
private[messenger] object Joining {
  val Router: Array[Byte] = Array.empty
  val Coordinator: Array[Byte] = "coordinator".getBytes(UTF_8)

  private val Look = 0.1 // seconds between two looks whether the Router refused

  /** Returns an identity that no other peer, attempt or process has. People can read it in messages. */
  def newIdentity(name: String): Array[Byte] =
    s"dealer/${name.take(128)}/${UUID.randomUUID().toString.filter(_ != '-').take(12)}".getBytes(UTF_8)

  /** Returns a peer's role and name, such as worker 'w0'. */
  def peerName(identity: Array[Byte]): String =
    if (identity.isEmpty) "the Router"
    else {
      val text = new String(identity, UTF_8)
      val (role, rest) = text.span(_ != '/')
      s"$role '${rest.drop(1).reverse.dropWhile(_ != '/').drop(1).reverse}'"
    }

  /** Introduces this Dealer to the Router and waits until the Router lets it in.
    *
    * Throws RefusedError if the Router does not want it, DeadlineError if no answer comes within `connectSeconds`.
    */
  def join(link: Link, name: String, address: String, settings: Settings): Welcome = {
    link.send(Router, Frames.encode(hello(name), settings.limits))
    val deadline = System.nanoTime() + (settings.connectSeconds * 1e9).toLong
    var welcome = Option.empty[Welcome]
    while (welcome.isEmpty) {
      val left = (deadline - System.nanoTime()) / 1e9
      if (left <= 0) throw new DeadlineError(unanswered(name, address, settings))
      for (reason <- link.refusal)
        throw new RefusedError(
          s"the Router at $address refused the dealer '$name': $reason; check the keys directory"
        )
      welcome = link.receive(math.min(left, Look)).filter(_.sender.isEmpty).flatMap(answer(_, settings))
    }
    welcome.get
  }

  private def answer(arrival: Arrival, settings: Settings): Option[Welcome] = {
    val message = Frames.decode(arrival.frames, settings.limits)
    message.kind match {
      case Kind.Welcome =>
        val heartbeat = message.header("heartbeat").asInstanceOf[Number].doubleValue
        Some(Welcome(message.count("credits").toInt, heartbeat, message.count("missed").toInt))
      case Kind.Error if message.text("code") == "frame" => throw new FrameError(message.text("text"))
      case Kind.Error => throw new RefusedError(message.text("text"))
      case _ => None
    }
  }

  private def hello(name: String): Message =
    Message(Kind.Hello, "role" -> "dealer", "name" -> name, "pid" -> ProcessHandle.current.pid, "host" -> host)

  private lazy val host: String = Try(InetAddress.getLocalHost.getHostName).getOrElse("unknown").take(255)

  private def unanswered(name: String, address: String, settings: Settings): String =
    s"the Router at $address did not answer the dealer '$name' within ${settings.connectSeconds} s" +
      " (connect_seconds): is it running there, and reachable from this host?"
}
