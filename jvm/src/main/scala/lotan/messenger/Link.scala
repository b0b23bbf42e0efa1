package lotan.messenger

/** A peer's connection to the Router. Only one thread may use it at a time. */
private[messenger] trait Link {

  /** Hands over a message for a peer; an empty identity is the Router's.
    *
    * Throws DeadlineError if the connection takes none for `connectSeconds`.
    */
  def send(to: Array[Byte], frames: Seq[Array[Byte]]): Unit

  /** Returns the next message, or None after that time. */
  def receive(seconds: Double): Option[Arrival]

  /** Returns the reason why the Router's side refused the connection, if it did. */
  def refusal: Option[String]

  /** Frees everything. Messages may still be delivered within that time. A second call does nothing. */
  def close(lingerSeconds: Double): Unit
}

/** The frames of a message and the identity of its sender. */
final private[messenger] class Arrival(val sender: Array[Byte], val frames: Seq[Array[Byte]])
