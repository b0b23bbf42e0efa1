package lotan.messenger

/** The header fields that each kind of message may and must have. */
object Fields {
  private type Check = (Any, Limits) => Boolean

  private val LongestName = 1024

  private val count: Check = (value, _) => isCount(value)

  private val word: Check = (value, _) => isWord(value)

  private val index: Check = (value, _) => isCount(value) || value == -1L // -1: none

  private val name: Check = (value, _) => isName(value)

  private val text: Check = {
    case (value: String, limits) => codePoints(value) <= limits.text
    case _ => false
  }

  private val flag: Check = (value, _) => value.isInstanceOf[Boolean]

  private val seconds: Check = {
    case (value: Long, _) => value > 0 && value < 1e9
    case (value: Double, _) => value > 0 && value < 1e9
    case _ => false
  }

  private val names: Check = {
    case (values: Seq[_], _) => values.forall(isName)
    case _ => false
  }

  /** [region, offset, bytes]. */
  private val extent: Check = {
    case (Seq(region, offset, size), _) => isPlace(region, offset) && isCount(size)
    case _ => false
  }

  private val map: Check = (value, _) => value.isInstanceOf[Map[_, _]]

  /** Tensors offered by checksum: [name, dtype, shape, checksum, kept for the epoch only]. */
  private val offers: Check = {
    case (values: Seq[_], limits) => values.forall(isOffer(_, limits))
    case _ => false
  }

  /** Returns true if a region's name and an offset are well formed, which does not say that the region exists. */
  private[messenger] def isPlace(region: Any, offset: Any): Boolean = (region, offset) match {
    case (called: String, at: Long) =>
      regionName.matches(called) && at >= Region.Alignment && at < (1L << 48) && at % Region.Alignment == 0
    case _ => false
  }

  private val regionName = "lotan-[0-9]{1,10}-[0-9]{1,10}-[0-9a-f]{16}".r

  private def isCount(value: Any): Boolean = value match {
    case number: Long => number >= 0
    case _ => false
  }

  private def isWord(value: Any): Boolean = value.isInstanceOf[BigInt] || isCount(value)

  private def isName(value: Any): Boolean = value match {
    case some: String => codePoints(some) <= LongestName
    case _ => false
  }

  private def codePoints(text: String): Int = text.codePointCount(0, text.length)

  private def isOffer(value: Any, limits: Limits): Boolean = value match {
    case Seq(_: String, _: String, shape: Seq[_], checksum, _: Boolean) =>
      shape.length <= limits.dimensions && shape.forall(isCount) && isWord(checksum)
    case _ => false
  }

  private val checks: Map[String, Check] = Map(
    "role" -> name,
    "name" -> name,
    "pid" -> count,
    "host" -> name,
    "credits" -> count,
    "heartbeat" -> seconds,
    "missed" -> count,
    "workers" -> names,
    "ticket" -> count, // of one attempt of one Dealer to pipe a partition
    "seq" -> count, // position among the ticket's CHUNK and END messages
    "run" -> name,
    "epoch" -> count,
    "stage" -> name,
    "mode" -> name,
    "partition" -> index,
    "chunk" -> count,
    "first_row" -> count,
    "rows" -> count,
    "digest" -> word,
    "offers" -> offers,
    "names" -> names,
    "spares" -> names, // tensors that the worker may ask for, and does without if it has kept what it made of them
    "reply" -> extent, // shared memory where a worker may write the chunk's result
    "group" -> count,
    "count" -> count,
    "checksum" -> word,
    "bytes_sent" -> count,
    "bytes_received" -> count,
    "bytes_shared" -> count, // of those sent and received, the ones that went through shared memory
    "first" -> flag,
    "unmapped" -> flag, // the ticket is given back because the worker cannot map the Dealer's region
    "what" -> name,
    "program" -> map,
    "settings" -> map,
    "code" -> name,
    "text" -> text
  )

  private val job = Seq("run", "epoch", "stage", "mode", "partition")

  private val required: Map[Kind, Seq[String]] = Map(
    Kind.Hello -> Seq("role", "name", "pid", "host"),
    Kind.Welcome -> Seq("credits", "heartbeat", "missed"),
    Kind.Ping -> Nil,
    Kind.Pong -> Nil,
    Kind.Rejoin -> Nil,
    Kind.Chunk -> (job ++ Seq("ticket", "seq", "group", "chunk", "first_row", "rows", "digest", "offers")),
    Kind.Result -> Seq("ticket", "chunk", "digest"),
    Kind.Need -> Seq("ticket", "chunk", "names"),
    Kind.Data -> Seq("what"),
    Kind.End -> Seq("ticket", "seq", "group", "count"),
    Kind.Partial -> Seq("ticket", "group", "count"),
    Kind.Close -> Seq("ticket"),
    Kind.Gone -> Seq("name"),
    Kind.Fetch -> Seq("what", "run"),
    Kind.Commit -> (job ++ Seq("ticket", "count", "rows", "checksum", "bytes_sent", "bytes_received")),
    Kind.Committed -> Seq("ticket", "first"),
    Kind.Lost -> Seq("text"),
    Kind.Error -> Seq("code", "text"),
    Kind.Forget -> Seq("run"),
    Kind.Stop -> Nil
  )

  private val optional: Map[Kind, Seq[String]] = Map[Kind, Seq[String]](
    Kind.Chunk -> Seq("reply", "spares"),
    Kind.Commit -> Seq("bytes_shared"),
    Kind.Pong -> Seq("workers"),
    Kind.Data -> Seq("ticket", "chunk", "run", "name", "epoch", "program", "settings"),
    Kind.Fetch -> Seq("name", "epoch"),
    Kind.Lost -> Seq("ticket", "name", "unmapped"),
    Kind.Error -> (job ++ Seq(
      "ticket",
      "chunk",
      "what",
      "name"
    )) // what, run, name, epoch: those of a FETCH that failed
  ).withDefaultValue(Nil)

  /** Checks that a header has the fields of its kind and no others, and that each has its type and is within limits.
    *
    * Throws FrameError if not.
    */
  def check(kind: Kind, header: Map[String, Any], limits: Limits): Unit = {
    val missing = required(kind).filterNot(header.contains)
    if (missing.nonEmpty) throw new FrameError(s"a $kind message lacks ${missing.mkString(", ")}")
    for ((field, value) <- header) {
      if (!required(kind).contains(field) && !optional(kind).contains(field))
        throw new FrameError(s"a $kind message has an unknown field ${Show(field)}")
      if (!checks(field)(value, limits))
        throw new FrameError(
          s"a $kind message has $field=${Show(value)}, which has the wrong type or exceeds its limit"
        )
    }
  }
}
