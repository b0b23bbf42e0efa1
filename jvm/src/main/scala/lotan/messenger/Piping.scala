package lotan.messenger

import java.util.NoSuchElementException

import scala.collection.immutable.VectorMap

/** One partition on its way through a worker, which `Dealer.pipe` starts.
  *
  * An attempt to send the partition's open groups has a ticket, a number that only grows. Whatever comes back under an older
  * ticket is ignored; when a worker is lost, a new ticket is taken and the open groups are sent again, in order. Results already
  * handed on are then compared and dropped, so that neither the rows nor the sums depend on what went wrong.
  */
final class Piping private[messenger] (
    dealer: Dealer,
    job: PipeJob,
    source: Iterator[OutgoingChunk],
    lender: Lender,
    settings: Settings,
    cancelled: () => Boolean
) extends Iterator[ReturnedChunk]
    with AutoCloseable {
  import Piping._

  private val stream = new Stream(job, settings.groupChunks)
  private var started = false
  private var exhausted = false
  private var committed = false
  private var over = false
  private var ticket = 0L
  private var sequence = 0L
  private var worker = ""
  private var replays = 0
  private var bytesSent = 0L
  private var bytesReceived = 0L
  private var bytesShared = 0L // of both
  private var current = Option.empty[ReturnedChunk] // the chunk that was handed on last
  private var whenEnded: () => Unit = () => ()

  /** True if it has ended, successfully or not. */
  def ended: Boolean = over

  override def hasNext: Boolean = !over && {
    try {
      for (chunk <- current) {
        chunk.check()
        lender.wasRead(chunk.index)
      }
      current = None
      advance()
    } catch {
      case error: RemoteError => end(); throw error
      case error: InterruptedException => end(); throw error
      case error: Throwable =>
        end()
        dealer.close() // the next partition starts with a new connection
        throw error
    }
    if (stream.ready.isEmpty) end()
    !over
  }

  override def next(): ReturnedChunk = {
    if (!hasNext) throw new NoSuchElementException(s"no more chunks of $job")
    val chunk = stream.ready.dequeue()
    current = Some(chunk)
    chunk
  }

  /** Stops, and commits nothing. It has no effect after the end. */
  override def close(): Unit = if (!over) end()

  /** Sets an action for the end, successful or not. */
  private[messenger] def onEnd(action: () => Unit): Piping = {
    whenEnded = action
    this
  }

  /** Tells the worker and the Router to drop what is left of the ticket. */
  private def end(): Unit = {
    over = true
    try if (started && dealer.isOpen) { val _ = dealer.send(Joining.Router, Message(Kind.Close, "ticket" -> ticket)) }
    catch { case _: MessengerError => dealer.close() }
    finally {
      lender.end()
      whenEnded()
    }
  }

  /** Sends and receives until a chunk is ready or the partition is committed. */
  private def advance(): Unit = {
    if (!started) start()
    while (!committed && { fill(); stream.ready.isEmpty }) {
      if (stream.done) commit()
      else if (!canSend) await(settings.resultSeconds, resultMissing())
    }
  }

  private def start(): Unit = {
    dealer.open()
    lender.begin(job)
    started = true
    newTicket()
  }

  private def newTicket(): Unit = {
    lender.giveUp()
    ticket = dealer.newTicket()
    sequence = 0
    worker = "the worker that the Router chose"
  }

  // -- sending ---------------------------------------------------------------------------------------------------------

  private def canSend: Boolean = (stream.unsent || !exhausted) && stream.inFlight.length < dealer.welcome.credits

  /** Sends as long as credits last, and takes the messages that arrive meanwhile. */
  private def fill(): Unit = {
    var more = true
    while (more && math.max(stream.inFlight.length, stream.ready.length) < dealer.welcome.credits) {
      stream.take() match {
        case Some(item) => send(item)
        case None if !exhausted => takeFromSource()
        case None => more = false
      }
      while (receive(0).isDefined) {}
    }
  }

  private def takeFromSource(): Unit =
    if (source.hasNext) stream.add(source.next())
    else {
      exhausted = true
      stream.end()
    }

  private def send(item: Item): Unit = {
    item match {
      case SendChunk(group, chunk) => send(Joining.Router, chunkMessage(group, chunk), lender.lend(chunk, along(chunk)))
      case SendEnd(group, count) =>
        send(
          Joining.Router,
          Message(Kind.End, "ticket" -> ticket, "seq" -> sequence, "group" -> group, "count" -> count)
        )
    }
    sequence += 1
  }

  private def send(to: Array[Byte], message: Message, space: Option[Space] = None): Unit = {
    val shared = space.fold(0L)(_ => message.tensors.map(_._2.bytes.toLong).sum)
    bytesShared += shared
    bytesSent += shared + dealer.send(to, message, space)
  }

  /** Makes a CHUNK. Tensors that the worker may have kept are offered by checksum, spare ones by name; the rest travels along. */
  private def along(chunk: OutgoingChunk): Seq[(String, Tensor)] =
    chunk.tensors.filterNot { case (name, _) => chunk.offered(name) || chunk.spare(name) }

  private def chunkMessage(group: Int, chunk: OutgoingChunk): Message = {
    val offers = for ((name, tensor) <- chunk.tensors if chunk.offered(name)) yield {
      Seq[Any](name, tensor.dtype, tensor.shape.toSeq, PlainData.word(tensor.checksum), chunk.epochKept(name))
    }
    val spares = if (chunk.spare.isEmpty) None else Some("spares" -> chunk.spare.toSeq.sorted)
    val header = jobFields ++ Seq(
      "ticket" -> ticket,
      "seq" -> sequence,
      "group" -> group,
      "chunk" -> chunk.index,
      "first_row" -> chunk.firstRow,
      "rows" -> chunk.rows,
      "digest" -> PlainData.word(chunk.digest),
      "offers" -> offers
    )
    val reply = lender.lendReply(chunk).map(space => "reply" -> Seq[Any](space.region, space.offset, space.bytes))
    Message(Kind.Chunk, header ++ spares ++ reply, along(chunk))
  }

  private def jobFields: VectorMap[String, Any] = VectorMap(
    "run" -> job.run,
    "epoch" -> job.epoch,
    "stage" -> job.stage,
    "mode" -> job.mode,
    "partition" -> job.partition
  )

  private def commit(): Unit = {
    sendCommit()
    while (!committed) await(settings.commitSeconds, commitMissing())
  }

  private def sendCommit(): Unit = {
    val header = jobFields ++ Seq(
      "ticket" -> ticket,
      "count" -> stream.count,
      "rows" -> stream.rows,
      "checksum" -> PlainData.word(stream.checksum),
      "bytes_sent" -> bytesSent,
      "bytes_received" -> bytesReceived,
      "bytes_shared" -> bytesShared
    )
    send(Joining.Coordinator, Message(Kind.Commit, header, stream.sums.tensors))
  }

  // -- waiting ---------------------------------------------------------------------------------------------------------

  /** Waits until a message of this ticket arrives. Silence is measured in heartbeats, so that a pause of this process is none. */
  private def await(seconds: Double, missing: => DeadlineError): Unit = {
    val deadline = System.nanoTime() + (seconds * 1e9).toLong
    var missed = 0
    var progress = false
    while (!progress) {
      if (cancelled()) throw new InterruptedException(s"cancelled: $job")
      receive(dealer.welcome.heartbeatSeconds) match {
        case Some(ofTicket) =>
          progress = ofTicket
          missed = 0
        case None =>
          if (missed > dealer.welcome.missedHeartbeats) throw routerLost(missed)
          missed += 1
          val _ = dealer.send(Joining.Router, Message(Kind.Ping)) // not counted as sent
      }
      if (!progress && System.nanoTime() > deadline) throw missing
    }
  }

  private def resultMissing(): DeadlineError = {
    val what = stream.inFlight.headOption.fold("the sums of a group")(chunk => s"chunk ${chunk.index}")
    new DeadlineError(
      s"$worker did not return $what of $job within ${settings.resultSeconds} s (result_seconds);" +
        " it is alive: give it more time or smaller chunks"
    )
  }

  private def commitMissing(): DeadlineError =
    new DeadlineError(s"the coordinator did not acknowledge $job within ${settings.commitSeconds} s (commit_seconds)")

  private def routerLost(missed: Int): RouterLostError =
    new RouterLostError(
      s"the Router at ${dealer.address} has been silent for $missed heartbeats of ${dealer.welcome.heartbeatSeconds} s:" +
        s" the Dealer of $job gives up; was the Router, or the driver that started it, ended?"
    )

  // -- receiving -------------------------------------------------------------------------------------------------------

  /** Takes one message if one arrives in that time, and returns whether it was of this ticket. */
  private def receive(seconds: Double): Option[Boolean] = dealer.receive(seconds).map { arrival =>
    bytesReceived += arrival.frames.map(_.length.toLong).sum
    val envelope = Frames.peek(arrival.frames.head, settings.limits)
    // What came under an older ticket may be where nobody may look any more.
    val own = OfTicket(envelope.kind) && envelope.header.get("ticket").forall(_ == ticket)
    if (own) {
      val lent = envelope.header.get("chunk").flatMap(index => lender.lent(index.asInstanceOf[Long]))
      val message = Frames.complete(envelope, arrival.frames.tail, settings.limits, lent)
      if (message.kind != Kind.Result) message.check() // a result is checked while it is read
      take(arrival.sender, message)
    }
    own
  }

  private def take(sender: Array[Byte], message: Incoming): Unit = message.kind match {
    case Kind.Rejoin => rejoin()
    case Kind.Result => result(sender, message)
    case Kind.Partial => stream.partial(message)
    case Kind.Need => answer(sender, message)
    case Kind.Lost => lost(sender, message)
    case Kind.Committed => committed = true
    case _ => throw remote(sender, message)
  }

  private def result(sender: Array[Byte], message: Incoming): Unit = {
    worker = Joining.peerName(sender)
    val (chunk, handedOn) = stream.result(message)
    lender.settle(new String(sender), chunk, message, handedOn)
    bytesReceived += message.shared
    bytesShared += message.shared
  }

  private def lost(sender: Array[Byte], message: Incoming): Unit =
    if (message.header.get("unmapped").contains(true) && lender.setApart(new String(sender))) {
      stream.restart()
      newTicket()
    } else replay(message.text("text"))

  /** Sends tensors that the worker has dropped, or never had. */
  private def answer(worker: Array[Byte], need: Incoming): Unit = {
    val index = need.count("chunk")
    val names = need.names("names")
    val tensors = for (name <- names; chunk <- stream.find(index); tensor <- chunk.tensor(name)) yield name -> tensor
    if (stream.find(index).isEmpty || tensors.length != names.length)
      throw new FrameError(
        s"${Joining.peerName(worker)} asks for ${names.mkString(", ").take(200)} of chunk $index, which has none such"
      )
    val header = VectorMap[String, Any]("what" -> "tensors", "ticket" -> ticket, "chunk" -> index)
    send(worker, Message(Kind.Data, header, tensors), lender.lend(stream.find(index).get, tensors))
  }

  private def replay(reason: String): Unit = {
    replays += 1
    if (replays > settings.maxReplays)
      throw new RemoteError(
        s"gave up on $job after $replays lost workers (max_replays); the last: $reason",
        job.stage,
        job.partition
      )
    stream.restart()
    newTicket()
  }

  /** Introduces the Dealer to a Router that has forgotten it, and sends the open groups again. */
  private def rejoin(): Unit = {
    dealer.rejoin()
    replay("the Router had lost this Dealer")
    if (stream.done) sendCommit()
  }

  private def remote(sender: Array[Byte], message: Incoming): MessengerError = {
    val text = s"$job: ${Joining.peerName(sender)} reports: ${message.text("text")}"
    message.text("code") match {
      case "frame" => new FrameError(message.text("text"))
      case "stale" => new StaleEpochError(text, job.stage, job.partition)
      case "conflict" => new ConflictError(text, job.stage, job.partition)
      case "no_worker" => new NoWorkerError(text, job.stage, job.partition)
      case _ => new RemoteError(text, job.stage, job.partition)
    }
  }
}

private object Piping {
  private val OfTicket: Set[Kind] =
    Set(Kind.Rejoin, Kind.Result, Kind.Partial, Kind.Need, Kind.Lost, Kind.Committed, Kind.Error)
}
