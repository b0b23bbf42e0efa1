package lotan.messenger

import java.io.IOException
import java.nio.file.Paths
import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable

import org.slf4j.LoggerFactory

/** The shared memory that a Dealer lends to workers, for a chunk's tensors and for its result.
  *
  * The region is made when it is first needed. The rules are those of Python's `messenger.shared_memory`; where results there are
  * freed when nobody refers to them, here they are when the iterator moves on.
  */
final private[messenger] class Lender(settings: Settings) {
  import Lender._

  private var region = Option.empty[Region]
  private var job: PipeJob = _
  private var full = false // no space could be had; tried again for the next partition
  private val loans = mutable.Map.empty[Int, Loan] // by chunk in flight
  private val reading = mutable.Map.empty[Int, Loan] // by chunk whose result is being read
  private val apart =
    mutable.LinkedHashSet.empty[(String, Int)] // run and partition: its worker shares no memory with us
  private val sharers = mutable.Set.empty[String] // workers that have read shared tensors
  private val results = mutable.Map.empty[(String, String), (Double, Int)] // most bytes a row, most tensors

  /** Begins a partition. */
  def begin(job: PipeJob): Unit = {
    this.job = job
    full = false
  }

  private def sharing: Boolean = settings.sharedBytes > 0 && !apart((job.run, job.partition))

  /** Returns space for tensors of a chunk, or None if they must travel inline. */
  def lend(chunk: OutgoingChunk, tensors: Seq[(String, Tensor)]): Option[Space] =
    take(Region.room(tensors.map(_._2))).map { space =>
      loan(chunk).sent += space
      space
    }

  /** Returns space for a chunk's result. Its size is that of the largest result so far, in proportion to the rows. */
  def lendReply(chunk: OutgoingChunk): Option[Space] = {
    val size = results.get((job.stage, job.mode)) match {
      case Some((rowBytes, tensors)) =>
        Region.padded(math.ceil(rowBytes * chunk.rows).toLong) + tensors * Region.Alignment
      case None if chunk.resultBytes > 0 => Region.padded(chunk.resultBytes) + Slack * Region.Alignment
      case None => Region.room(chunk.tensors.collect { case (name, tensor) if !chunk.spare(name) => tensor }) // a guess
    }
    take(size).map { space =>
      loan(chunk).reply = Some(space)
      space
    }
  }

  /** Returns what is lent for a chunk in flight. */
  def lent(chunk: Long): Option[Regions] = loans.get(chunk.toInt)

  /** Ends the loan for a chunk whose result has arrived. A result that is returned to the caller is still read from there. */
  def settle(worker: String, chunk: OutgoingChunk, result: Incoming, handedOn: Boolean): Unit = {
    val key = (job.stage, job.mode)
    val rowBytes = result.tensors.values.map(_.bytes.toDouble).sum / math.max(1, chunk.rows)
    val (mostBytes, mostTensors) = results.getOrElse(key, (0.0, 0))
    results(key) = (math.max(rowBytes, mostBytes), math.max(result.tensors.size, mostTensors))
    loans.remove(chunk.index) match {
      case Some(loan) =>
        if (loan.sent.nonEmpty) sharers += worker
        loan.endSent()
        if (handedOn && result.shared > 0) reading(chunk.index) = loan else loan.endReply()
      case None if sharers(worker) => apart -= ((job.run, job.partition)) // it has moved to a worker of this host
      case None =>
    }
  }

  /** Notes that the iterator has moved on from a chunk. */
  def wasRead(chunk: Int): Unit = reading.remove(chunk).foreach(_.endReply())

  /** Sends the partition inline from now on, because its worker cannot map the region. False if it travels inline already. */
  def setApart(worker: String): Boolean = sharing && {
    apart += ((job.run, job.partition))
    if (apart.size > ApartLimit) apart -= apart.head
    sharers -= worker
    for (loan <- loans.values) {
      loan.endSent()
      loan.endReply()
    }
    loans.clear()
    true
  }

  /** Ends a ticket. If a chunk is still in flight, its worker may write later, so the region is not used again. */
  def giveUp(): Unit = if (loans.nonEmpty) close()

  /** Ends a partition, whose results nobody reads any more. */
  def end(): Unit = {
    giveUp()
    for (loan <- reading.values) loan.endReply()
    reading.clear()
  }

  /** Frees the region. Another one is made when it is needed. */
  def close(): Unit = {
    loans.clear()
    region.foreach(_.close())
    region = None
  }

  private def loan(chunk: OutgoingChunk): Loan = loans.getOrElseUpdate(chunk.index, new Loan(region.get))

  private def take(size: Long): Option[Space] =
    if (full || !sharing || size == 0 || size > settings.sharedBytes) None
    else
      try {
        if (region.isEmpty) region = Some(new Region(Paths.get(settings.sharedDirectory), settings.sharedBytes))
        region.get.take(size.toInt)
      } catch {
        case error: InterruptedException =>
          close() // an interrupt closes the region's file
          throw error
        case error: IOException =>
          full = true
          warn(
            s"no shared memory in ${settings.sharedDirectory} (shared_directory): $error; tensors travel through" +
              " sockets, which is slower. Free space there, or set shared_bytes lower"
          )
          None
      }
}

private object Lender {
  private val ApartLimit = 4096 // partitions remembered whose workers share no memory; the oldest are tried again
  private val Slack = 4 // tensors of a result that is not known yet
  private val log = LoggerFactory.getLogger(classOf[Lender])
  private val warned = ConcurrentHashMap.newKeySet[String]()

  private def warn(text: String): Unit = if (warned.add(text)) log.warn(text)

  /** The bytes of a region that are lent for one chunk in flight. */
  private final class Loan(region: Region) extends Regions {
    val sent = mutable.Buffer.empty[Space]
    var reply = Option.empty[Space]

    override def view(name: String, offset: Long, size: Int): java.nio.ByteBuffer = {
      val start = reply.fold(-1L)(offset - _.offset)
      reply
        .filter(space => name == space.region && start >= 0 && start + size <= space.bytes)
        .getOrElse(
          throw new FrameError(s"a result is at $offset of the region $name, $size bytes that were not lent for it")
        )
        .memory
        .slice(start.toInt, size)
    }

    def endSent(): Unit = {
      sent.foreach(region.give)
      sent.clear()
    }

    def endReply(): Unit = {
      reply.foreach(region.give)
      reply = None
    }
  }
}
