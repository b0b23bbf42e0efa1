package lotan.messenger

import scala.collection.mutable

import org.scalatest.{Assertion, BeforeAndAfterEach}
import org.scalatest.funsuite.AnyFunSuite
import org.zeromq.{SocketType, ZContext, ZMQ}

class SocketsSuite extends AnyFunSuite with BeforeAndAfterEach {
  private val settings = Settings(connectSeconds = 60, lingerSeconds = 1, sharedBytes = 0)
  private val deadline = 60.0 // seconds; of a machine that is busy with other tests

  private val opened = mutable.Buffer.empty[Link]

  override def afterEach(): Unit = {
    opened.foreach(_.close(1))
    opened.clear()
    Sockets.closeUnused()
  }

  /** A socket that sends back what it gets, from another sender's name. */
  private def withEcho(keys: Option[Keys] = None)(action: String => Any): Unit = {
    val context = new ZContext
    val socket = context.createSocket(SocketType.ROUTER)
    for (one <- keys) {
      socket.setCurveServer(true)
      socket.setCurvePublicKey(ZMQ.Curve.z85Decode(one.public))
      socket.setCurveSecretKey(ZMQ.Curve.z85Decode(one.secret))
    }
    val port = socket.bindToRandomPort("tcp://127.0.0.1")
    val thread = new Thread(() => echo(socket))
    thread.start()
    try { val _ = action(s"tcp://127.0.0.1:$port") }
    finally {
      thread.interrupt()
      thread.join()
      context.close()
    }
  }

  private def echo(socket: ZMQ.Socket): Unit =
    try
      while (true) {
        val frame = socket.recv()
        if (frame == null) throw new InterruptedException
        socket.send(frame, if (socket.hasReceiveMore) ZMQ.SNDMORE else 0)
      }
    catch { case _: Exception => } // told to end

  private def connect(address: String, keys: Option[Keys] = None): Link = {
    opened += Sockets.connect(Endpoint(address, keys), Joining.newIdentity("d"), settings)
    opened.last
  }

  private def exchange(link: Link, frames: Array[Byte]*): Assertion = {
    link.send("somebody".getBytes, frames)
    val answer = link.receive(deadline).get
    assert(new String(answer.sender) == "somebody")
    assert(answer.frames.map(_.toSeq) == frames.map(_.toSeq))
  }

  test("frames go there and back, small, large and empty") {
    withEcho() { address =>
      val link = connect(address)
      exchange(link, "header".getBytes)
      exchange(link, "header".getBytes, Array.tabulate(3 << 20)(_.toByte), Array.empty, Array(7))
      for (i <- 0 until 1000) link.send(Array.empty, Seq(Array(i.toByte)))
      for (i <- 0 until 1000) assert(link.receive(deadline).get.frames.head.head == i.toByte)
      assert(link.receive(0).isEmpty && link.receive(0.01).isEmpty)
      link.close(1)
      link.close(1)
    }
  }

  test("an interrupted thread harms no connection") {
    withEcho() { address =>
      val links = Seq.fill(2)(connect(address))
      links.foreach(exchange(_, Array(1)))
      for (round <- 1 to 200) {
        val task = new Thread(() =>
          try while (true) exchange(links.head, Array.fill(1 + round % 3)(1))
          catch { case _: InterruptedException => links.head.send("last".getBytes, Seq(Array(9))) }
        )
        task.start()
        exchange(links(1), Array(1))
        task.interrupt()
        task.join()
        var last = links.head.receive(deadline).get
        while (new String(last.sender) != "last") last = links.head.receive(deadline).get
      }
      links.foreach(exchange(_, Array(2)))
    }
  }

  test("keys on both sides") {
    val Seq(server, client) = Seq.fill(2)(ZMQ.Curve.generateKeyPair()): @unchecked
    withEcho(Some(Keys("", server.publicKey, server.secretKey))) { address =>
      exchange(connect(address, Some(Keys(server.publicKey, client.publicKey, client.secretKey))), Array(1))
    }
  }

  test("a secret key is not printed") {
    assert(!Endpoint.of("tcp://x:1", "server", "public", "secret").toString.contains("secret"))
    assert(Endpoint.of("tcp://x:1", null, null, null) == Endpoint("tcp://x:1"))
  }

  test("what is no address or key is said") {
    for (address <- Seq("nonsense", "tcp://127.0.0.1:x", "tcp://127.0.0.1", "udp://127.0.0.1:7"))
      assert(intercept[MessengerError](connect(address)).getMessage.contains(address))
    assertThrows[MessengerError](connect("tcp://127.0.0.1:1", Some(Keys("short", "a", "b"))))
  }

  test("where nobody listens") {
    val dealer = new Dealer(Endpoint("tcp://127.0.0.1:1"), settings.copy(connectSeconds = 0.2), "d")
    val job = PipeJob("run", 0, "s", "turn", 0, accumulates = true)
    assert(intercept[DeadlineError](dealer.pipe(job, Iterator.empty).hasNext).getMessage.contains("did not answer"))
  }

  test("who still waits on a link that is closed hears of it") {
    withEcho() { address =>
      val link = connect(address)
      exchange(link, Array(1))
      link.close(1)
      assert(intercept[MessengerError](link.receive(deadline)).getMessage.contains("closed"))
    }
  }

  test("the threads end with the last link that is used") {
    withEcho() { address =>
      val Seq(one, other) = Seq.fill(2)(connect(address)): @unchecked
      for (link <- Seq(one, other)) exchange(link, Array(1))
      one.close(1)
      Sockets.closeUnused()
      exchange(other, Array(2))
      other.close(1)
      Sockets.closeUnused()
      assert(!Sockets.running)
      exchange(connect(address), Array(3)) // and one can begin anew
    }
  }
}
