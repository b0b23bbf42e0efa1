package lotan.messenger

import org.scalatest.funsuite.AnyFunSuite

class ArrivingSuite extends AnyFunSuite {
  private val limits = Limits()
  private val names = Seq("a", "b", "c")
  private val sent = names.zipWithIndex.map { case (name, i) => name -> Array.tabulate(5000 * i + 3)(_ * 0.5f + i) }

  private def frames: Seq[Array[Byte]] = {
    val tensors = sent.map { case (name, values) => name -> new Floats(values, 0, values.length, 1) }
    Frames.encode(Message(Kind.Data, Message(Kind.Data, "what" -> "tensors").header, tensors), limits)
  }

  private def arriving(frames: Seq[Array[Byte]]): Incoming =
    Frames.complete(Frames.peek(frames.head, limits), frames.tail, limits)

  private def read(message: Incoming, name: String): Array[Float] = {
    val tensor = message.tensors(name)
    val into = new Array[Float](tensor.size)
    tensor.copyTo(into, 0)
    into
  }

  private val orders = (0 to 3).flatMap(names.combinations).flatMap(_.permutations) :+ Seq("b", "b", "a", "b", "c")

  test("what is whole is read, in any order, some of it or all") {
    for (order <- orders) {
      val message = arriving(frames)
      for (name <- order) assert(read(message, name).sameElements(sent.toMap.apply(name)), order)
      message.check()
      message.check()
    }
  }

  test("what is corrupted is found, in whatever order it was read") {
    for (order <- orders; damaged <- names.indices) {
      val all = frames
      all(damaged + 1)(1) = (all(damaged + 1)(1) ^ 4).toByte
      val message = arriving(all)
      val error = intercept[FrameError] {
        order.foreach(read(message, _))
        message.check()
      }
      assert(error.getMessage.contains("a 'data' message do not have its checksum"), order)
    }
  }

  test("numbers are never handed out as doubles before they are checked") {
    val all = frames
    all(3)(0) = (all(3)(0) ^ 1).toByte
    assertThrows[FrameError](arriving(all).tensors("a").toDoubles)
  }
}
