package lotan.messenger

/** One connection to the Router, for any number of partitions, one at a time.
  *
  * A Dealer connects when it is first used, and again after a failure. Only one thread may use it.
  *
  * @param name
  *   its name in errors and logs
  */
final class Dealer private[messenger] (endpoint: Endpoint, settings: Settings, name: String, connect: Dealer.Connect) {
  private var link = Option.empty[Link]
  private var current = Option.empty[Welcome]
  private var ticket = 0L
  private var piping = Option.empty[Piping]
  private val lender = new Lender(settings)

  def this(endpoint: Endpoint, settings: Settings, name: String) =
    this(endpoint, settings, name, Sockets.connect)

  /** Sends chunks to a worker and iterates over the chunks that it returns, in order, with several under way.
    *
    * After the last one the partition is committed: the iterator ends when the coordinator has acknowledged it. Closed earlier,
    * it commits nothing. An interrupt of the thread that waits is InterruptedException, and harms nobody else.
    *
    * The iterator throws RemoteError if the handler failed, or one of its kinds: StaleEpochError (the epoch is over),
    * ConflictError (another attempt has other results), NoWorkerError; DeadlineError if a result or the acknowledgement did
    * not come in time; RouterLostError, RefusedError or FrameError if the connection failed.
    *
    * @param chunks
    *   asked for the next one when there is room under way
    * @param cancelled
    *   is checked at every heartbeat; true has the effect of an interrupt
    */
  def pipe(job: PipeJob, chunks: Iterator[OutgoingChunk], cancelled: () => Boolean = () => false): Piping = {
    if (piping.exists(!_.ended))
      throw new MessengerError(
        "a Dealer pipes one partition at a time: end the earlier iterator, or take another Dealer"
      )
    piping = Some(new Piping(this, job, chunks, lender, settings, cancelled))
    piping.get
  }

  /** Disconnects. The Dealer can be used again. */
  def close(): Unit = {
    link.foreach(_.close(settings.lingerSeconds))
    link = None
    lender.close()
  }

  // -- for the partition at hand ---------------------------------------------------------------------------------------

  private[messenger] def isOpen: Boolean = link.isDefined

  private[messenger] def address: String = endpoint.address

  private[messenger] def welcome: Welcome = current.get

  private[messenger] def open(): Unit = if (link.isEmpty) {
    val opened = connect(endpoint, Joining.newIdentity(name), settings)
    try current = Some(Joining.join(opened, name, endpoint.address, settings))
    catch {
      case error: Throwable =>
        opened.close(0)
        throw error
    }
    link = Some(opened)
  }

  /** Introduces this Dealer to a Router that does not know it, or has forgotten it. */
  private[messenger] def rejoin(): Unit = current = Some(Joining.join(link.get, name, endpoint.address, settings))

  /** A number that no earlier attempt of this Dealer had. */
  private[messenger] def newTicket(): Long = {
    ticket += 1
    ticket
  }

  /** Sends a message and returns the number of its bytes. */
  private[messenger] def send(to: Array[Byte], message: Message, space: Option[Space] = None): Long = {
    val frames = Frames.encode(message, settings.limits, space)
    link.get.send(to, frames)
    frames.map(_.length.toLong).sum
  }

  private[messenger] def receive(seconds: Double): Option[Arrival] = link.get.receive(seconds)
}

private object Dealer {
  type Connect = (Endpoint, Array[Byte], Settings) => Link
}
