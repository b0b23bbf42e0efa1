package lotan.messenger

/** A peer's connection to the Router, used by one thread at a time. */
private[messenger] trait Link {

  /** Hands over a message for a peer; an empty identity is the Router's.
    *
    * Throws DeadlineError if the connection takes none for `connectSeconds`.
    */
  def send(to: Array[Byte], frames: Seq[Array[Byte]]): Unit

  /** The next message, or None after that time. */
  def receive(seconds: Double): Option[Arrival]

  /** Why the Router's side refused the connection, if it did. */
  def refusal: Option[String]

  /** Frees everything; what was sent may still be delivered within that time. May be called twice. */
  def close(lingerSeconds: Double): Unit
}

/** The frames of a message and the identity of who sent it. */
final private[messenger] class Arrival(val sender: Array[Byte], val frames: Seq[Array[Byte]])
