package lotan.messenger

import scala.collection.mutable

/** A task: something to send. */
sealed private[messenger] trait Item

final private[messenger] case class SendChunk(group: Int, chunk: OutgoingChunk) extends Item

/** Closes a group of `count` chunks. */
final private[messenger] case class SendEnd(group: Int, count: Int) extends Item

/** A Dealer's book-keeping for one partition: chunks to send, results returned, groups to send again. It does no I/O.
  *
  * Sums and checksum are those of an undisturbed run, even if groups were sent again.
  *
  * @param groupChunks
  *   number of chunks in a group
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

  /** True if every chunk has its result and every group its sums. Chunks may be left in `ready`. */
  def done: Boolean = ended && groups.isEmpty && toSend.isEmpty && inFlight.isEmpty

  /** True if `take` will return a task. */
  def unsent: Boolean = toSend.nonEmpty

  /** The checksum of the partition's results and sums, by which attempts are compared. */
  def checksum: Long = results.copy.update(sums.checksum).value

  /** Adds the next chunk of the partition.
    *
    * Throws MessengerError if the chunk's index is not greater than the last one.
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

  /** Closes the last group, because the partition has no more chunks. */
  def end(): Unit = {
    groups.lastOption.filterNot(_.closed).foreach(close)
    ended = true
  }

  private def close(group: Stream.Group): Unit = {
    group.closed = true
    if (job.accumulates) toSend += SendEnd(group.index, group.chunks.length)
    finishReturned()
  }

  /** Returns the next task, or None. A chunk counts as in flight from then on. */
  def take(): Option[Item] = Option.when(toSend.nonEmpty) {
    val item = toSend.dequeue()
    item match {
      case SendChunk(_, chunk) => inFlight += chunk
      case _ =>
    }
    item
  }

  /** Takes a RESULT. A chunk's second result is only compared with the first. Returns the chunk, and whether it is ready.
    *
    * Throws ConflictError if the result is not that of the oldest chunk in flight, or differs from the chunk's first.
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

  /** Drops closed groups whose chunks are all returned, if nothing is summed. */
  private def finishReturned(): Unit =
    if (!job.accumulates) { val _ = groups.dequeueWhile(group => group.closed && group.chunks.isEmpty) }

  /** Takes a group's sums.
    *
    * Throws ConflictError if they are not the complete sums of the oldest open group.
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

  /** Schedules everything in the open groups to be sent again, because the worker is lost. */
  def restart(): Unit = {
    inFlight.clear()
    toSend.clear()
    for (group <- groups) {
      toSend ++= group.chunks.map(SendChunk(group.index, _))
      if (group.closed && job.accumulates) toSend += SendEnd(group.index, group.chunks.length)
    }
  }

  /** Returns the chunk of that index, or None if it is not in flight. */
  def find(index: Long): Option[OutgoingChunk] = inFlight.find(_.index == index)

  private def conflict(what: String) = new ConflictError(s"$what, in $job", job.stage, job.partition)
}

private object Stream {

  /** Consecutive chunks whose gradients a worker sums. A group is open until the worker has sent the sums. */
  private final class Group(val index: Int) {
    val chunks = mutable.Queue.empty[OutgoingChunk] // kept for a replay
    val results = mutable.HashMap.empty[Int, Long] // chunk index -> checksum of its result, once returned
    var closed = false // no chunk will be added
  }
}
