package zmq

import java.nio.channels.{SelectionKey, Selector}
import java.util.concurrent.{CountDownLatch, TimeUnit}

import scala.util.Using

import org.scalatest.Assertion
import org.scalatest.funsuite.AnyFunSuite

import zmq.util.Errno

class SignalerSuite extends AnyFunSuite {
  private val Deadline = 30L // seconds

  private def signaler(test: (Signaler, Errno) => Assertion): Assertion = {
    val context = new Ctx
    val errno = new Errno
    try Using.resource(new Signaler(context, 0, errno))(test(_, errno))
    finally context.terminate()
  }

  test("whoever is woken finds the signal") {
    signaler { (signals, _) =>
      val count = 20000
      val done = new CountDownLatch(1)
      var vain = 0
      val reader = new Thread(() =>
        Using.resource(Selector.open()) { selector =>
          signals.getFd.register(selector, SelectionKey.OP_READ)
          var left = count
          while (left > 0 && selector.select(TimeUnit.SECONDS.toMillis(Deadline)) > 0) {
            selector.selectedKeys().clear()
            if (!signals.waitEvent(0)) vain += 1
            while (signals.waitEvent(0)) {
              signals.recv()
              left -= 1
            }
          }
          if (left == 0) done.countDown()
        }
      )
      reader.start()
      for (_ <- 1 to count) signals.send()
      assert(done.await(Deadline, TimeUnit.SECONDS))
      assert(vain == 0)
    }
  }

  test("a wait ends with a signal, in time, or with an interrupt") {
    signaler { (signals, errno) =>
      assert(!signals.waitEvent(0) && errno.get == ZError.EAGAIN)
      assert(!signals.waitEvent(1) && errno.get == ZError.EAGAIN)
      signals.send()
      for (timeout <- Seq(0L, 1L, -1L)) assert(signals.waitEvent(timeout))
      signals.recv()
      assert(!signals.waitEvent(0))
      Thread.currentThread.interrupt()
      assert(!signals.waitEvent(-1) && errno.get == ZError.EINTR)
      assert(!Thread.interrupted())
    }
  }

  test("an interrupt is put off, and harms no pipe") {
    signaler { (signals, _) =>
      Thread.currentThread.interrupt()
      signals.send()
      signals.recv()
      assert(Thread.interrupted())
      signals.send()
      assert(signals.waitEvent(-1))
    }
  }
}
