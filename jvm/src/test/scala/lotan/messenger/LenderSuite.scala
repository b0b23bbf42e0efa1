package lotan.messenger

import java.nio.file.Files

import scala.collection.immutable.VectorMap
import scala.collection.mutable

import org.scalatest.funsuite.AnyFunSuite

import Replies._

class LenderSuite extends AnyFunSuite {
  private val settings = Settings(groupChunks = 2, sharedBytes = 1 << 20)
  private val job = PipeJob("run", 0, "s", "forward", 1, accumulates = false)

  /** A worker that writes results where it is told to. */
  private def sharing(seen: mutable.Buffer[Incoming]): FakeRouter = {
    var router: FakeRouter = null
    router = new FakeRouter(
      {
        case message if message.kind == Kind.Chunk =>
          seen += message
          val answer = router.plain(message).head
          val Seq(region: String, offset: Long, bytes: Long) =
            message.header("reply").asInstanceOf[Seq[Any]]: @unchecked
          router.space = Some(new Space(region, offset.toInt, OpenedRegions.view(region, offset, bytes.toInt)))
          Seq(answer)
      },
      Some(OpenedRegions)
    )
    router
  }

  private def dealer(router: FakeRouter, settings: Settings = settings): Dealer =
    new Dealer(Endpoint("nowhere"), settings, "d", (_, _, _) => router)

  private def piped(dealer: Dealer, count: Int): Seq[Double] =
    dealer.pipe(job, Iterator.tabulate(count)(chunk(_))).map(_.tensors("y").toDoubles.head).toVector

  test("tensors go through shared memory, both ways, and its space is used again") {
    val seen = mutable.Buffer.empty[Incoming]
    val router = sharing(seen)
    val one = dealer(router)
    for (_ <- 1 to 3) {
      assert(piped(one, 200) == Seq.tabulate(200)(_.toDouble))
      val commit = router.last(Kind.Commit)
      assert(commit.count("bytes_shared") == 200 * 8)
      assert(commit.count("bytes_sent") > commit.count("bytes_shared"))
    }
    assert(seen.forall(_.shared == 4))
    val regions = seen.map(_.header("reply").asInstanceOf[Seq[Any]])
    assert(regions.map(_.head).toSet.size == 1, "one region")
    assert(regions.map(_(1).asInstanceOf[Long]).max < 64 * 40, "the same few places")
    one.close()
  }

  test("a result is good until the iterator moves on") {
    val one = dealer(sharing(mutable.Buffer.empty))
    val piping = one.pipe(job, Iterator.tabulate(20)(chunk(_)))
    for (index <- 0 until 20) {
      val returned = piping.next()
      assert(returned.tensors("y").toDoubles.head == index)
    }
    one.close()
  }

  for (reads <- Seq(true, false))
    test(s"a result that changes before it is ${if (reads) "read" else "let go"} is noticed") {
      val seen = mutable.Buffer.empty[Incoming]
      val one = dealer(sharing(seen))
      val piping = one.pipe(job, Iterator.tabulate(5)(chunk(_)))
      val returned = piping.next()
      val Seq(region: String, offset: Long, _) = seen.head.header("reply").asInstanceOf[Seq[Any]]: @unchecked
      OpenedRegions.view(region, offset, 4).put(0, 77.toByte)
      val error = intercept[FrameError] {
        if (reads) returned.tensors("y").copyTo(new Array[Float](1), 0)
        piping.hasNext
      }
      assert(error.getMessage.contains("do not have its checksum"))
      one.close()
    }

  test("a worker that cannot map the region is sent everything inline, and that is no replay") {
    var refused = 0
    val router = new FakeRouter(
      {
        case message if message.kind == Kind.Chunk && message.shared > 0 =>
          refused += 1
          Seq(
            Message(
              Kind.Lost,
              VectorMap[String, Any]("ticket" -> message.count("ticket"), "text" -> "another host", "unmapped" -> true)
            )
          )
      },
      Some(OpenedRegions)
    )
    val one = dealer(router, settings.copy(maxReplays = 0))
    assert(piped(one, 20) == Seq.tabulate(20)(_.toDouble))
    assert(refused >= 1 && refused <= 3)
    val before = refused
    assert(piped(one, 20).length == 20)
    assert(refused == before, "remembered")
    one.close()
  }

  test("a worker that was lost may still write: the region is never used again") {
    val seen = mutable.Buffer.empty[Incoming]
    var left = 1
    var router: FakeRouter = null
    router = new FakeRouter(
      {
        case message if message.kind == Kind.Chunk =>
          seen += message
          left -= 1
          if (left == -3) Seq(Message(Kind.Lost, "ticket" -> message.count("ticket"), "text" -> "gone"))
          else router.plain(message)
      },
      Some(OpenedRegions)
    )
    val one = dealer(router)
    assert(piped(one, 20) == Seq.tabulate(20)(_.toDouble))
    val byTicket = seen.groupMap(_.count("ticket"))(_.header("reply").asInstanceOf[Seq[Any]].head)
    assert(byTicket.size == 2 && byTicket.values.forall(_.toSet.size == 1))
    assert(byTicket(1).head != byTicket(2).head)
    one.close()
  }

  test("a result elsewhere than it was lent for is refused") {
    var router: FakeRouter = null
    router = new FakeRouter(
      {
        case message if message.kind == Kind.Chunk =>
          val Seq(region: String, offset: Long, _) = message.header("reply").asInstanceOf[Seq[Any]]: @unchecked
          val wrong = offset + 6400
          router.space = Some(new Space(region, wrong.toInt, OpenedRegions.view(region, wrong, 64)))
          router.plain(message)
      },
      Some(OpenedRegions)
    )
    assert(intercept[FrameError](piped(dealer(router), 1)).getMessage.contains("not lent"))
  }

  test("without a directory, or in one that is too small, all travels inline") {
    for (other <- Seq(settings.copy(sharedDirectory = "/dev/shm/nowhere"), settings.copy(sharedBytes = 64))) {
      val router = new FakeRouter()
      assert(piped(dealer(router, other), 20) == Seq.tabulate(20)(_.toDouble))
      assert(router.last(Kind.Commit).count("bytes_shared") == 0)
    }
    assert(!Files.exists(java.nio.file.Paths.get("/dev/shm/nowhere")))
  }
}
