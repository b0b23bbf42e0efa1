package lotan.messenger

import scala.collection.immutable.VectorMap
import scala.collection.mutable

import Replies._

/** A link whose other side is played in this thread: a Router, a worker and a coordinator that answer at once.
  *
  * A worker returns chunks in order and sums each group to the sum of its chunks' indices.
  *
  * @param disturb
  *   what is answered instead, if anything; asked for every message that comes
  * @param regions
  *   shared memory that this side can read
  */
final class FakeRouter(
    disturb: PartialFunction[Incoming, Seq[Message]] = PartialFunction.empty,
    regions: Option[Regions] = None
) extends Link {

  /** Where the next answer's tensors go; inline where there is none. */
  var space = Option.empty[Space]

  val heard = mutable.Buffer.empty[Incoming]
  var closed = false
  private val answers = mutable.Queue.empty[Arrival]
  private val sums = mutable.Map.empty[Long, Double].withDefaultValue(0.0)

  def kinds: Seq[Kind] = heard.map(_.kind).toSeq

  def last(kind: Kind): Incoming = heard.filter(_.kind == kind).last

  override def send(to: Array[Byte], frames: Seq[Array[Byte]]): Unit = {
    val message = Frames.decode(frames, Limits(), regions)
    heard += message
    answers ++= disturb.applyOrElse(message, plain).map(arrival)
  }

  private def arrival(message: Message): Arrival = {
    val sender = if (fromRouter(message.kind)) "" else "worker/w0/12ab"
    val frames = Frames.encode(message, Limits(), space)
    space = None
    new Arrival(sender.getBytes, frames)
  }

  private val fromRouter = Set[Kind](Kind.Welcome, Kind.Pong, Kind.Rejoin)

  /** What is answered when nothing is wrong. */
  def plain(message: Incoming): Seq[Message] = message.kind match {
    case Kind.Hello =>
      Seq(Message(Kind.Welcome, "credits" -> 3L, "heartbeat" -> 0.01, "missed" -> 5L))
    case Kind.Ping => Seq(Message(Kind.Pong))
    case Kind.Chunk =>
      sums(message.count("ticket")) += message.count("chunk")
      Seq(result(message.count("ticket"), chunk(message.count("chunk").toInt)))
    case Kind.End =>
      val ticket = message.count("ticket")
      Seq(partial(ticket, message.count("group"), message.count("count"), sums.remove(ticket).getOrElse(0.0)))
    case Kind.Commit =>
      Seq(Message(Kind.Committed, VectorMap[String, Any]("ticket" -> message.count("ticket"), "first" -> true)))
    case _ => Nil
  }

  override def receive(seconds: Double): Option[Arrival] =
    if (answers.nonEmpty) Some(answers.dequeue())
    else {
      Thread.sleep((seconds * 1000).toLong) // as a wait that nothing ends
      None
    }

  override def refusal: Option[String] = None

  override def close(lingerSeconds: Double): Unit = closed = true
}
