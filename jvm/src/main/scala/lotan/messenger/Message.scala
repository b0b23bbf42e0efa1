package lotan.messenger

import scala.collection.immutable.VectorMap

/** A message to a peer.
  *
  * @param header
  *   plain data, as `PlainData` defines it
  */
final case class Message(kind: Kind, header: VectorMap[String, Any], tensors: Seq[(String, Tensor)] = Nil)

object Message {
  def apply(kind: Kind, header: (String, Any)*): Message = Message(kind, VectorMap(header: _*))
}

/** A message from a peer. Its tensors may not be checked yet.
  *
  * @param checksum
  *   of the tensors
  * @param shared
  *   bytes of tensors that lie in shared memory
  */
final class Incoming(
    val kind: Kind,
    val header: VectorMap[String, Any],
    val tensors: VectorMap[String, Received],
    val checksum: Long,
    val shared: Long = 0,
    arriving: Option[Arriving] = None
) {

  /** Checks the tensors that nobody has read. Throws FrameError if they were corrupted on the way. */
  def check(): Unit = arriving.foreach(_.check())

  /** A count, which fields are unless their name says otherwise. */
  def count(name: String): Long = header(name).asInstanceOf[Long]

  /** 64 bits, such as a checksum or a digest. */
  def word(name: String): Long = header(name) match {
    case small: Long => small
    case large => large.asInstanceOf[BigInt].toLong
  }

  def text(name: String): String = header(name).asInstanceOf[String]

  def names(name: String): Seq[String] = header(name).asInstanceOf[Seq[String]]
}
