package lotan.messenger

import scala.collection.mutable

import org.scalatest.funsuite.AnyFunSuite

import Replies._

class DealerSuite extends AnyFunSuite {
  private val settings =
    Settings(groupChunks = 2, resultSeconds = 0.2, commitSeconds = 0.2, maxReplays = 2, sharedBytes = 0)
  private val job = PipeJob("run", 4, "s", "turn", 1, accumulates = true)

  private def dealer(routers: FakeRouter*): Dealer = dealer(settings, routers: _*)

  private def dealer(settings: Settings, routers: FakeRouter*): Dealer = {
    val next = routers.iterator
    new Dealer(Endpoint("nowhere"), settings, "d", (_, _, _) => next.next())
  }

  private def chunks(count: Int): Iterator[OutgoingChunk] = Iterator.tabulate(count)(chunk(_))

  /** What the coordinator got: rows, checksum and sums. */
  private def committed(router: FakeRouter): (Long, Long, Seq[Double]) = {
    val commit = router.last(Kind.Commit)
    (commit.count("rows"), commit.word("checksum"), commit.tensors("gradient/w").toDoubles.toSeq)
  }

  private val plain = {
    val router = new FakeRouter
    assert(dealer(router).pipe(job, chunks(7)).map(_.index).toSeq == (0 until 7))
    committed(router)
  }

  test("a partition is piped and committed") {
    assert((plain._1, plain._3) == ((70L, Seq(21.0))))
  }

  test("the same Dealer pipes partition after partition, and says CLOSE after each") {
    val router = new FakeRouter
    val one = dealer(router)
    for (_ <- 1 to 3) {
      one.pipe(job, chunks(7)).foreach(_ => ())
      assert(committed(router) == plain)
      assert(router.kinds.last == Kind.Close)
    }
    assert(router.kinds.count(_ == Kind.Hello) == 1)
    assert(router.heard.filter(_.kind == Kind.Commit).map(_.count("ticket")) == Seq(1, 2, 3))
  }

  test("an empty partition is committed") {
    val router = new FakeRouter
    assert(dealer(router).pipe(job, Iterator.empty).isEmpty)
    assert(router.last(Kind.Commit).count("count") == 0)
  }

  /** The first time that `when` holds, something else is answered. */
  private def once(when: Incoming => Boolean)(answer: Incoming => Message): FakeRouter = {
    var left = 1
    new FakeRouter({ case message if left > 0 && when(message) => left -= 1; Seq(answer(message)) })
  }

  private def isChunk(index: Int)(message: Incoming): Boolean =
    message.kind == Kind.Chunk && message.count("chunk") == index

  private def lost(message: Incoming): Message =
    Message(Kind.Lost, "ticket" -> message.count("ticket"), "text" -> "gone")

  for (index <- 0 until 7) test(s"a worker lost at chunk $index: the same rows and sums") {
    val router = once(isChunk(index))(lost)
    assert(dealer(router).pipe(job, chunks(7)).map(_.index).toSeq == (0 until 7))
    assert(committed(router) == plain)
    assert(router.last(Kind.Commit).count("ticket") == 2)
  }

  test("a worker lost before it hands sums over") {
    val router = once(_.kind == Kind.End)(lost)
    assert(dealer(router).pipe(job, chunks(7)).length == 7)
    assert(committed(router) == plain)
  }

  test("a Router that has forgotten the Dealer") {
    for (kind <- Seq(Kind.Chunk, Kind.End, Kind.Commit)) {
      val router = once(_.kind == kind)(_ => Message(Kind.Rejoin))
      assert(dealer(router).pipe(job, chunks(7)).length == 7)
      assert(committed(router) == plain && router.kinds.count(_ == Kind.Hello) == 2, kind)
    }
  }

  test("workers that are lost again and again") {
    val router = new FakeRouter({ case message if isChunk(1)(message) => Seq(lost(message)) })
    val error = intercept[RemoteError](dealer(router).pipe(job, chunks(7)).foreach(_ => ()))
    assert(error.getMessage.contains("after 3 lost workers") && error.partition == 1)
  }

  test("what is offered is sent when it is asked for") {
    val router = new FakeRouter({
      case message if message.kind == Kind.Chunk =>
        assert(message.tensors.isEmpty)
        Seq(Message(Kind.Need, "ticket" -> 1L, "chunk" -> message.count("chunk"), "names" -> Seq("x")))
      case message if message.kind == Kind.Data => Seq(result(1, chunk(message.count("chunk").toInt)))
    })
    assert(dealer(router).pipe(job.copy(accumulates = false), Iterator(chunk(5, static = true))).length == 1)
    val Seq(offer: Seq[_]) = router.last(Kind.Chunk).header("offers").asInstanceOf[Seq[_]]: @unchecked
    val sent = router.last(Kind.Data).tensors("x")
    assert(sent.toDoubles.toSeq == Seq((0.1f * 5).toDouble))
    assert(offer == Seq("x", "float32", Seq(1L, 1L), PlainData.word(sent.checksum), false))
  }

  test("what is spare is computed and sent only when it is asked for") {
    var computed = 0
    val spare = new ComputedFloats(
      2,
      3,
      (from, until, into) => {
        computed += 1
        for (i <- 0 until (until - from) * 3) into(i) = (from * 3 + i).toFloat
      }
    )
    def spared: Iterator[OutgoingChunk] = Iterator.single {
      val plain = chunk(0)
      plain.copy(tensors = plain.tensors :+ ("rows" -> spare), spare = Set("rows"))
    }
    val content = new FakeRouter
    assert(dealer(content).pipe(job, spared).length == 1)
    assert(content.last(Kind.Chunk).tensors.keySet == Set("x"))
    assert(content.last(Kind.Chunk).names("spares") == Seq("rows"))
    assert(computed == 0)
    val asking = new FakeRouter({
      case message if message.kind == Kind.Chunk =>
        Seq(Message(Kind.Need, "ticket" -> 1L, "chunk" -> 0L, "names" -> Seq("rows")))
      case message if message.kind == Kind.Data => Seq(result(1, chunk(0)))
    })
    assert(dealer(asking).pipe(job.copy(accumulates = false), spared).length == 1)
    assert(asking.last(Kind.Data).tensors("rows").toDoubles.toSeq == Seq.tabulate(6)(_.toDouble))
  }

  test("a worker that asks for what was not offered") {
    val router = once(isChunk(0))(_ => Message(Kind.Need, "ticket" -> 1L, "chunk" -> 0L, "names" -> Seq("z")))
    assert(intercept[FrameError](dealer(router).pipe(job, chunks(1)).hasNext).getMessage.contains("asks for z"))
    assert(router.closed)
  }

  test("what is of an older ticket is ignored") {
    val router = new FakeRouter({
      case message if message.kind == Kind.Chunk && message.count("ticket") == 2 =>
        Seq(result(1, chunk(0), flavour = 9), result(2, chunk(message.count("chunk").toInt)))
    })
    val one = dealer(router)
    one.pipe(job, chunks(1)).foreach(_ => ())
    assert(one.pipe(job.copy(accumulates = false), chunks(2)).length == 2)
  }

  for (
    (code, check) <- Seq[(String, Throwable => Boolean)](
      "stale" -> (_.isInstanceOf[StaleEpochError]),
      "conflict" -> (_.isInstanceOf[ConflictError]),
      "no_worker" -> (_.isInstanceOf[NoWorkerError]),
      "handler" -> (_.isInstanceOf[RemoteError]),
      "frame" -> (_.isInstanceOf[FrameError])
    )
  )
    test(s"an error: $code") {
      val router = once(isChunk(1))(_ => Message(Kind.Error, "code" -> code, "text" -> "oh no", "ticket" -> 1L))
      val error = intercept[MessengerError](dealer(router).pipe(job, chunks(3)).foreach(_ => ()))
      assert(check(error) && error.getMessage.contains("oh no"))
      if (code != "frame")
        assert(error.getMessage.contains("stage 's' (turn), partition 1") && error.getMessage.contains("worker 'w0'"))
    }

  /** A worker that answers no more from a chunk on, in groups of two. */
  private def silentFrom(chunk: Int): PartialFunction[Incoming, Seq[Message]] = {
    case message if message.kind == Kind.Chunk && message.count("chunk") >= chunk => Nil
    case message if message.kind == Kind.End && message.count("group") >= chunk / 2 => Nil
  }

  test("a result that does not come in time") {
    val router = new FakeRouter(silentFrom(1))
    val error = intercept[DeadlineError](dealer(router).pipe(job, chunks(3)).foreach(_ => ()))
    assert(error.getMessage.contains("worker 'w0' did not return chunk 1") && router.closed)
  }

  test("an acknowledgement that does not come in time") {
    val router = new FakeRouter({ case message if message.kind == Kind.Commit => Nil })
    val error = intercept[DeadlineError](dealer(router).pipe(job, chunks(1)).foreach(_ => ()))
    assert(error.getMessage.contains("commit_seconds"))
  }

  test("a Router that falls silent") {
    val router = new FakeRouter(silentFrom(0).orElse({ case message if message.kind == Kind.Ping => Nil }))
    // The silence is found long before a result is late, also on a machine that is slow to wake a thread.
    val patient = settings.copy(resultSeconds = 60)
    assertThrows[RouterLostError](dealer(patient, router).pipe(job, chunks(3)).hasNext)
  }

  test("a Router that does not answer, or refuses") {
    val silent = new FakeRouter({ case _ => Nil })
    val hasty = new Dealer(Endpoint("nowhere"), settings.copy(connectSeconds = 0.05), "d", (_, _, _) => silent)
    assertThrows[DeadlineError](hasty.pipe(job, chunks(1)).hasNext)
    assert(silent.closed)
    val refusing = new FakeRouter({ case _ => Seq(Message(Kind.Error, "code" -> "name", "text" -> "taken")) })
    // what comes from elsewhere is no answer to HELLO
    assertThrows[MessengerError](
      new Dealer(Endpoint("nowhere"), settings.copy(connectSeconds = 0.05), "d", (_, _, _) => refusing)
        .pipe(job, chunks(1))
        .hasNext
    )
  }

  test("credits bound what is under way") {
    val router = new FakeRouter(silentFrom(0))
    val pulled = mutable.Buffer.empty[Int]
    val piping = dealer(router).pipe(job, chunks(9).map { one => pulled += one.index; one })
    assertThrows[DeadlineError](piping.hasNext)
    assert(pulled == Seq(0, 1, 2))
  }

  test("an interrupted task leaves the Dealer usable") {
    val silent = new FakeRouter(silentFrom(3))
    val one = dealer(silent)
    val interrupted =
      one.pipe(job, chunks(7).map { one => if (one.index == 3) Thread.currentThread().interrupt(); one })
    assertThrows[InterruptedException](interrupted.foreach(_ => ()))
    assert(interrupted.ended && silent.kinds.last == Kind.Close && !silent.closed)
    val cancelled = one.pipe(job, chunks(7), cancelled = () => true)
    assertThrows[InterruptedException](cancelled.foreach(_ => ()))
    one.pipe(job, chunks(2)).foreach(_ => ())
    assert(!silent.closed && silent.kinds.count(_ == Kind.Hello) == 1)
  }

  test("closed early, it commits nothing") {
    val router = new FakeRouter
    val one = dealer(router)
    val piping = one.pipe(job, chunks(7))
    piping.next()
    assertThrows[MessengerError](one.pipe(job, chunks(1)))
    piping.close()
    piping.close()
    assert(!piping.hasNext && router.kinds.count(_ == Kind.Close) == 1 && !router.kinds.contains(Kind.Commit))
    assertThrows[NoSuchElementException](piping.next())
    one.pipe(job, chunks(7)).foreach(_ => ())
    assert(committed(router) == plain)
  }

  test("an error in the source is thrown as it is, and the next partition has a new connection") {
    val routers = Seq(new FakeRouter, new FakeRouter)
    val one = dealer(routers: _*)
    val broken = chunks(2) ++ Iterator.continually[OutgoingChunk](throw new ArithmeticException("no input"))
    assertThrows[ArithmeticException](one.pipe(job, broken).foreach(_ => ()))
    assert(routers.head.closed)
    one.pipe(job, chunks(7)).foreach(_ => ())
    assert(committed(routers(1)) == plain)
  }
}
