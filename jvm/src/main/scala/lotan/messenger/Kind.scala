package lotan.messenger

/** The purpose of a message. In the comments, D is a Dealer, W a worker, C the coordinator and R the Router. */
sealed abstract class Kind(val text: String) {
  override def toString: String = s"'$text'"
}

object Kind {
  case object Hello extends Kind("hello") // D W C -> R: who I am
  case object Welcome extends Kind("welcome") // R -> D W C: you are in; window and heartbeat
  case object Ping extends Kind("ping") // D W C -> R
  case object Pong extends Kind("pong") // R -> D W C
  case object Rejoin extends Kind("rejoin") // R -> D W C: I do not know you (any more): say HELLO, and start anew
  case object Chunk extends Kind("chunk") // D -> W, whom the Router chooses
  case object Result extends Kind("result") // W -> D: a chunk's rows
  case object Need extends Kind("need") // W -> D: tensors that were offered by checksum
  case object Data extends Kind("data") // D -> W, C -> W: what was asked for
  case object End extends Kind("end") // D -> W: the group is complete
  case object Partial extends Kind("partial") // W -> D: the sums of a group
  case object Close extends Kind("close") // D -> W: this ticket is over
  case object Gone extends Kind("gone") // R -> W: a Dealer is gone, drop what is its
  case object Fetch extends Kind("fetch") // W -> C: a stage's program or an epoch's parameters
  case object Commit extends Kind("commit") // D -> C: a partition is done
  case object Committed extends Kind("committed") // C -> D
  case object Lost extends Kind("lost") // R -> D, W -> D: your ticket's worker is gone or out of step
  case object Error extends Kind("error") // anyone -> anyone
  case object Forget extends Kind("forget") // C -> R -> all W: a run is over
  case object Stop extends Kind("stop") // C -> R -> all W

  val All: Seq[Kind] = Seq(
    Hello,
    Welcome,
    Ping,
    Pong,
    Rejoin,
    Chunk,
    Result,
    Need,
    Data,
    End,
    Partial,
    Close,
    Gone,
    Fetch,
    Commit,
    Committed,
    Lost,
    Error,
    Forget,
    Stop
  )

  private val byText = All.map(kind => kind.text -> kind).toMap

  /** Returns the kind of that name.
    *
    * Throws FrameError if there is none.
    */
  def of(text: Any): Kind = text match {
    case known: String if byText.contains(known) => byText(known)
    case other =>
      throw new FrameError(
        s"a message of unknown kind ${Show(other)}; known: ${All.map(_.text).mkString(", ")}"
      )
  }
}
