package lotan.messenger

import scala.collection.mutable

/** To do: what to send next. */
sealed private[messenger] trait Item

final private[messenger] case class SendChunk(group: Int, chunk: OutgoingChunk) extends Item

/** Closes a group of `count` chunks. */
final private[messenger] case class SendEnd(group: Int, count: Int) extends Item

/** A Dealer's book-keeping for one partition: what to send next, what has come back, what to send again. Does no I/O.
  *
  * Sums and checksum are those of an undisturbed run, whatever was replayed.
  *
  * @param groupChunks
  *   chunks whose gradients are summed on a worker before they are taken over
  */
final private[messenger] class Stream(val job: PipeJob, groupChunks: Int) {
  val sums = new Sums
  val inFlight: mutable.Queue[OutgoingChunk] = mutable.Queue.empty // sent, not answered, in order
  val ready: mutable.Queue[ReturnedChunk] = mutable.Queue.empty // answered, not yet handed on
  var count = 0
  var rows = 0L

  private val groups = mutable.Queue.empty[Stream.Group] // unfinished ones, oldest first
  private val toSend = mutable.Queue.empty[Item]
  private val results = new Xxh64
  private var last = -1 // index of the newest chunk
  private var handed = 0 // chunks before this index were handed on
  private var ended = false

  /** Whether all chunks were answered and all groups handed over. What is `ready` may be left. */
  def done: Boolean = ended && groups.isEmpty && toSend.isEmpty && inFlight.isEmpty

  /** Whether `take` has something. */
  def unsent: Boolean = toSend.nonEmpty

  /** Of all that this partition came to: results and sums. Attempts are compared by it. */
  def checksum: Long = results.copy.update(sums.checksum).value

  /** Takes the next chunk of the partition.
    *
    * Throws MessengerError if chunks are out of order.
    */
  def add(chunk: OutgoingChunk): Unit = {
    if (chunk.index <= last)
      throw new MessengerError(s"chunk ${chunk.index} came after chunk $last: a partition's chunks come in order")
    last = chunk.index
    if (groups.lastOption.forall(_.closed)) groups += new Stream.Group(count / groupChunks)
    val group = groups.last
    group.chunks += chunk
    toSend += SendChunk(group.index, chunk)
    count += 1
    rows += chunk.rows
    if (count % groupChunks == 0) close(group)
  }

  /** No more chunks. */
  def end(): Unit = {
    groups.lastOption.filterNot(_.closed).foreach(close)
    ended = true
  }

  private def close(group: Stream.Group): Unit = {
    group.closed = true
    if (job.accumulates) toSend += SendEnd(group.index, group.chunks.length)
    finishReturned()
  }

  /** What to send next, if anything; a chunk counts as in flight from now on. */
  def take(): Option[Item] = Option.when(toSend.nonEmpty) {
    val item = toSend.dequeue()
    item match {
      case SendChunk(_, chunk) => inFlight += chunk
      case _ =>
    }
    item
  }

  /** Takes a RESULT; one that has been handed on before is only compared. Tells the chunk that it is of, and whether it is ready.
    *
    * Throws ConflictError if it is not the answer to the oldest chunk in flight, or differs from the one before the replay.
    */
  def result(message: Incoming): (OutgoingChunk, Boolean) = {
    val index = message.count("chunk")
    if (inFlight.headOption.forall(_.index != index)) throw conflict(s"a result of chunk $index arrived out of order")
    val chunk = inFlight.dequeue()
    if (message.word("digest") != chunk.digest) throw conflict(s"the result of chunk $index is for other vertices")
    val group = groups.find(_.chunks.exists(_ eq chunk)).get
    if (group.results.getOrElseUpdate(chunk.index, message.checksum) != message.checksum)
      throw conflict(s"chunk $index had another result when it was sent again")
    val fresh = chunk.index >= handed
    handOn(group, chunk, message)
    (chunk, fresh)
  }

  private def handOn(group: Stream.Group, chunk: OutgoingChunk, message: Incoming): Unit = {
    if (!job.accumulates) group.chunks.dequeueFirst(_ eq chunk)
    if (chunk.index >= handed) {
      handed = chunk.index + 1
      for (number <- Seq(chunk.index.toLong, chunk.firstRow.toLong, chunk.rows.toLong, chunk.digest, message.checksum))
        results.update(number)
      ready += new ReturnedChunk(chunk, message)
    }
    finishReturned()
  }

  /** Where nothing is summed, a group is finished when its chunks are back. */
  private def finishReturned(): Unit =
    if (!job.accumulates) { val _ = groups.dequeueWhile(group => group.closed && group.chunks.isEmpty) }

  /** Takes a group's sums.
    *
    * Throws ConflictError if they are not those of the oldest open group, complete.
    */
  def partial(message: Incoming): Unit = {
    val index = message.count("group")
    val group = groups.headOption
      .filter(group => group.closed && group.index == index)
      .getOrElse(throw conflict(s"the sums of group $index arrived out of order"))
    val expected = group.chunks.length
    if (message.count("count") != expected || group.results.size != expected)
      throw conflict(s"the sums of group $index are of ${message.count("count")} chunks, not of $expected")
    sums.add(message.tensors)
    val _ = groups.dequeue()
  }

  /** The worker is lost: everything of the open groups is to be sent again. */
  def restart(): Unit = {
    inFlight.clear()
    toSend.clear()
    for (group <- groups) {
      toSend ++= group.chunks.map(SendChunk(group.index, _))
      if (group.closed && job.accumulates) toSend += SendEnd(group.index, group.chunks.length)
    }
  }

  /** The chunk of that index, while it is in flight. */
  def find(index: Long): Option[OutgoingChunk] = inFlight.find(_.index == index)

  private def conflict(what: String) = new ConflictError(s"$what, in $job", job.stage, job.partition)
}

private object Stream {

  /** A run of consecutive chunks whose gradients a worker sums; open until the worker has handed the sums over. */
  private final class Group(val index: Int) {
    val chunks = mutable.Queue.empty[OutgoingChunk] // kept for a replay
    val results = mutable.HashMap.empty[Int, Long] // chunk index -> checksum of its result, once returned
    var closed = false // no chunk will be added
  }
}
