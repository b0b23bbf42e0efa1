package lotan.messenger

import org.scalatest.funsuite.AnyFunSuite

import Replies._

class StreamSuite extends AnyFunSuite {
  private val job = PipeJob("run", 0, "s", "turn", 3, accumulates = true)
  private val chunks = Seq.tabulate(5)(chunk(_))

  private def full(job: PipeJob = job, groupChunks: Int = 2): Stream = {
    val stream = new Stream(job, groupChunks)
    chunks.foreach(stream.add)
    stream.end()
    stream
  }

  private def drain(stream: Stream): Seq[Item] =
    Iterator.continually(stream.take()).takeWhile(_.isDefined).flatten.toSeq

  private def give(stream: Stream, chunks: OutgoingChunk*): Unit =
    for (one <- chunks) stream.result(arrived(result(1, one)))

  private def sums(stream: Stream, group: Long, count: Long): Unit =
    stream.partial(arrived(partial(1, group, count, group + 0.5)))

  test("chunks go in groups, and come back in order") {
    val stream = full()
    val items = drain(stream)
    assert(items.map {
      case SendChunk(group, chunk) => (group, chunk.index)
      case SendEnd(group, count) => (group, -count)
    } == Seq((0, 0), (0, 1), (0, -2), (1, 2), (1, 3), (1, -2), (2, 4), (2, -1)))
    assert(stream.inFlight.map(_.index) == Seq(0, 1, 2, 3, 4) && !stream.unsent)
    give(stream, chunks: _*)
    for ((count, group) <- Seq(2, 2, 1).zipWithIndex) {
      assert(!stream.done)
      sums(stream, group.toLong, count.toLong)
    }
    assert(stream.done && stream.ready.map(_.index) == Seq(0, 1, 2, 3, 4))
    assert((stream.count, stream.rows) == ((5, 50L)))
    assert(
      stream.checksum == java.lang.Long.parseUnsignedLong("17766275112789942463"),
      "as Python's, of the same chunks and sums"
    )
  }

  test("an empty partition is done at once") {
    val stream = new Stream(job, 2)
    assert(!stream.done)
    stream.end()
    assert(stream.done && stream.take().isEmpty)
  }

  test("after a restart open groups are sent again, and what was handed on is compared and dropped") {
    val undisturbed = full()
    drain(undisturbed)
    give(undisturbed, chunks: _*)
    for ((count, group) <- Seq(2, 2, 1).zipWithIndex) sums(undisturbed, group.toLong, count.toLong)

    val stream = full()
    drain(stream)
    give(stream, chunks.take(3): _*)
    sums(stream, 0, 2)
    stream.restart()
    assert(stream.inFlight.isEmpty)
    assert(drain(stream).collect { case SendChunk(_, chunk) => chunk.index } == Seq(2, 3, 4))
    give(stream, chunks.drop(2): _*)
    sums(stream, 1, 2)
    sums(stream, 2, 1)
    assert(stream.done && stream.ready.map(_.index) == Seq(0, 1, 2, 3, 4), "each once")
    assert(stream.checksum == undisturbed.checksum)
  }

  test("where nothing is summed, returned chunks are not sent again") {
    val stream = full(job.copy(accumulates = false))
    assert(drain(stream).forall(_.isInstanceOf[SendChunk]))
    give(stream, chunks.take(3): _*)
    stream.restart()
    assert(drain(stream).collect { case SendChunk(_, chunk) => chunk.index } == Seq(3, 4))
    give(stream, chunks.drop(3): _*)
    assert(stream.done)
  }

  private def conflict(words: String)(action: Stream => Any): Unit = test(s"a conflict: $words") {
    val stream = full()
    drain(stream)
    val error = intercept[ConflictError](action(stream))
    assert(error.getMessage.contains(words) && error.getMessage.contains("partition 3"))
    assert((error.stage, error.partition) == (("s", 3)))
  }

  conflict("chunk 1 arrived out of order")(give(_, chunks(1)))
  conflict("for other vertices")(give(_, chunks.head.copy(digest = 5)))
  conflict("the sums of group 1 arrived out of order")(sums(_, 1, 2))
  conflict("are of 1 chunks, not of 2") { stream => give(stream, chunks: _*); sums(stream, 0, 1) }
  conflict("are of 2 chunks, not of 2") { stream => give(stream, chunks.head); sums(stream, 0, 2) }
  conflict("had another result") { stream =>
    give(stream, chunks.head)
    stream.restart()
    drain(stream)
    stream.result(arrived(result(1, chunks.head, flavour = 0.5f)))
  }

  test("chunks come in order") {
    val stream = new Stream(job, 2)
    stream.add(chunks(1))
    assertThrows[MessengerError](stream.add(chunks(1)))
  }

  test("a chunk is found while it is in flight") {
    val stream = full()
    assert(stream.find(0).isEmpty)
    drain(stream)
    assert(stream.find(4).contains(chunks(4)))
    give(stream, chunks.head)
    assert(stream.find(0).isEmpty)
  }
}
