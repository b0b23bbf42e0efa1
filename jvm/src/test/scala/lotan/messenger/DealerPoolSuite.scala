package lotan.messenger

import scala.collection.mutable

import org.scalatest.funsuite.AnyFunSuite

import Replies._

class DealerPoolSuite extends AnyFunSuite {
  private val settings = Settings(sharedBytes = 0)
  private val endpoint = Endpoint("nowhere")

  /** A pool, and the Routers that it has connected to, in order. */
  private def pool(): (DealerPool, mutable.Buffer[FakeRouter]) = {
    val routers = mutable.Buffer.empty[FakeRouter]
    val made = new DealerPool((_, _, _) => {
      routers += new FakeRouter
      routers.last
    })
    (made, routers)
  }

  private def job(run: String) = PipeJob(run, 4, "s", "turn", 1, accumulates = true)

  private def open(pool: DealerPool, run: String): Piping =
    pool.pipe(endpoint, settings, job(run), Iterator.tabulate(3)(chunk(_)))

  private def pipe(pool: DealerPool, run: String): Unit = open(pool, run).foreach(_ => ())

  test("a run keeps its connections while others come and end") {
    val (dealers, routers) = pool()
    for (run <- Seq("one", "other", "one", "other")) pipe(dealers, run)
    assert(routers.length == 2)
    dealers.close("one")
    assert(routers.map(_.closed) == Seq(true, false))
    pipe(dealers, "other")
    assert(routers.length == 2)
  }

  test("a task of a run that has ended leaves no connection") {
    val (dealers, routers) = pool()
    val late = open(dealers, "one")
    assert(late.hasNext)
    dealers.close("one")
    assert(!routers.head.closed)
    late.close()
    assert(routers.head.closed && dealers.idleCount == 0)
  }

  test("what has been idle for long is closed") {
    val (dealers, routers) = pool()
    pipe(dealers, "one")
    dealers.sweep(60)
    assert(!routers.head.closed)
    dealers.sweep(0)
    assert(routers.head.closed && dealers.idleCount == 0)
  }
}
