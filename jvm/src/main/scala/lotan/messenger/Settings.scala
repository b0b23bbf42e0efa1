package lotan.messenger

import java.util

import scala.jdk.CollectionConverters._

/** The largest message. A header is checked against these limits before memory is allocated for the tensors.
  *
  * @param headerBytes
  *   the msgpack header of a message
  * @param frameBytes
  *   one tensor; a socket closes a connection that sends a longer frame
  * @param messageBytes
  *   all tensors of a message
  * @param tensors
  *   tensors in a message
  * @param dimensions
  *   dimensions of a tensor
  * @param text
  *   UTF-8 bytes of one string in a header
  * @param items
  *   elements of one list or map in a header
  */
final case class Limits(
    headerBytes: Int = 16 << 20,
    frameBytes: Int = 1 << 30,
    messageBytes: Long = 4L << 30,
    tensors: Int = 4096,
    dimensions: Int = 8,
    text: Int = 65536,
    items: Int = 16384
)

/** The deadlines, in seconds, and the amounts of work and memory that a Dealer needs. They have the same names in Python.
  *
  * @param groupChunks
  *   chunks whose gradients a worker sums before it sends the sums to the Dealer
  * @param connectSeconds
  *   a Dealer waits this long for the Router's first answer, and for the connection to take a message
  * @param resultSeconds
  *   a Dealer waits this long for the next result: it must exceed the slowest chunk
  * @param commitSeconds
  *   a Dealer waits this long for the coordinator's acknowledgement
  * @param maxReplays
  *   a Dealer gives up on a partition that was sent again more often than this
  * @param lingerSeconds
  *   a socket that closes tries this long to deliver its last messages
  * @param highWaterMark
  *   messages that ZeroMQ queues for a connection; credits keep the number far below
  * @param sharedBytes
  *   shared memory that a Dealer may use; 0 for none
  * @param sharedDirectory
  *   the directory of a Dealer's shared memory, in a file system in memory
  */
final case class Settings(
    groupChunks: Int = 16,
    connectSeconds: Double = 15.0,
    resultSeconds: Double = 600.0,
    commitSeconds: Double = 60.0,
    maxReplays: Int = 8,
    lingerSeconds: Double = 2.0,
    highWaterMark: Int = 1024,
    sharedBytes: Int = 64 << 20,
    sharedDirectory: String = "/dev/shm",
    limits: Limits = Limits()
)

object Settings {

  /** Reads Python's settings as plain data. Settings for other peers are ignored; missing ones have their defaults. */
  def of(values: util.Map[String, _]): Settings = {
    val plain = Settings()
    val read = new Numbers(values)
    Settings(
      groupChunks = read.int("group_chunks", plain.groupChunks),
      connectSeconds = read.double("connect_seconds", plain.connectSeconds),
      resultSeconds = read.double("result_seconds", plain.resultSeconds),
      commitSeconds = read.double("commit_seconds", plain.commitSeconds),
      maxReplays = read.int("max_replays", plain.maxReplays),
      lingerSeconds = read.double("linger_seconds", plain.lingerSeconds),
      highWaterMark = read.int("high_water_mark", plain.highWaterMark),
      sharedBytes = read.int("shared_bytes", plain.sharedBytes),
      sharedDirectory = Option(values.get("shared_directory")).fold(plain.sharedDirectory)(_.toString),
      limits = Option(values.get("limits")).fold(plain.limits)(some => limits(some.asInstanceOf[util.Map[String, _]]))
    )
  }

  private def limits(values: util.Map[String, _]): Limits = {
    val plain = Limits()
    val read = new Numbers(values)
    Limits(
      headerBytes = read.int("header_bytes", plain.headerBytes),
      frameBytes = read.int("frame_bytes", plain.frameBytes),
      messageBytes = read.number("message_bytes").fold(plain.messageBytes)(_.longValue),
      tensors = read.int("tensors", plain.tensors),
      dimensions = read.int("dimensions", plain.dimensions),
      text = read.int("text", plain.text),
      items = read.int("items", plain.items)
    )
  }

  private final class Numbers(values: util.Map[String, _]) {
    private val known = values.asScala

    def number(name: String): Option[Number] = known.get(name).map {
      case number: Number => number
      case other => throw new IllegalArgumentException(s"setting $name is ${Show(other)}; expected a number")
    }

    def int(name: String, default: Int): Int =
      number(name).fold(default)(_.longValue.min(Int.MaxValue.toLong).toInt)

    def double(name: String, default: Double): Double = number(name).fold(default)(_.doubleValue)
  }
}
