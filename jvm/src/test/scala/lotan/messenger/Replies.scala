package lotan.messenger

import scala.collection.immutable.VectorMap

/** Chunks, and what a worker would say of them. */
object Replies {

  /** Of one row each, with one number that is the same for any attempt. */
  def chunk(index: Int, static: Boolean = false): OutgoingChunk =
    OutgoingChunk(
      index,
      firstRow = 10 * index,
      rows = 10,
      digest = -1L - index,
      tensors = Seq("x" -> new Floats(Array(0.1f * index), 0, 1, 1)),
      static = if (static) Set("x") else Set.empty
    )

  /** A RESULT; `flavour` tells one content from another. */
  def result(ticket: Long, chunk: OutgoingChunk, flavour: Float = 0): Message =
    Message(
      Kind.Result,
      VectorMap("ticket" -> ticket, "chunk" -> chunk.index.toLong, "digest" -> PlainData.word(chunk.digest)),
      Seq("y" -> new Floats(Array(chunk.index + flavour), 0, 1, 1))
    )

  /** A PARTIAL that sums to `sum`. */
  def partial(ticket: Long, group: Long, count: Long, sum: Double): Message =
    Message(
      Kind.Partial,
      VectorMap("ticket" -> ticket, "group" -> group, "count" -> count),
      Seq("gradient/w" -> new Doubles(Array(sum), Array(1)))
    )

  /** A message as its receiver sees it. */
  def arrived(message: Message): Incoming = Frames.decode(Frames.encode(message, Limits()), Limits())
}
