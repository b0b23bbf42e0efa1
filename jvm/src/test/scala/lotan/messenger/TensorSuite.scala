package lotan.messenger

import java.nio.{ByteBuffer, ByteOrder}

import org.scalatest.funsuite.AnyFunSuite

class TensorSuite extends AnyFunSuite {

  /** The tensor as its receiver sees it. */
  private def travelled(tensor: Tensor): Received = {
    val message = Message(Kind.Data, Message(Kind.Data, "what" -> "tensors").header, Seq("x" -> tensor))
    val received = Frames.decode(Frames.encode(message, Limits()), Limits()).tensors("x")
    assert(received.dtype == tensor.dtype && received.shape.sameElements(tensor.shape))
    assert(received.checksum == tensor.checksum)
    received
  }

  private val values = Array.tabulate(20)(i => i * 0.1f)

  test("rows of an array") {
    val received = travelled(new Floats(values, 4, 3, 2))
    val into = Array.fill(8)(-1f)
    received.copyTo(into, 1)
    assert(into.sameElements(Array(-1f) ++ values.slice(4, 10) ++ Array(-1f)))
    assert(travelled(new Floats(values, 0, 0, 5)).size == 0)
  }

  test("rows picked from several arrays") {
    val arrays = Array(values, Array.empty[Float], values.map(-_))
    val picked = new PickedFloats(arrays, Array(0, 10, 10, 20), Array(0, 9, 10, 11, 19), 2)
    val expected = Seq(0, 1, 18, 19).map(values) ++ Seq(0, 1, 2, 3, 18, 19).map(-values(_))
    assert(travelled(picked).toDoubles.toSeq == expected.map(_.toDouble))
  }

  test("rows computed as they are written, some at a time") {
    for ((rows, width) <- Seq((3, 2), (0, 4), (1, 100000), (500, 257))) {
      val all = Array.tabulate(rows * width)(_ * 0.5f)
      val computed = new ComputedFloats(
        rows,
        width,
        (from, until, into) => System.arraycopy(all, from * width, into, 0, (until - from) * width)
      )
      val plain = new Floats(all, 0, rows, width)
      assert(travelled(computed).toDoubles.toSeq == all.map(_.toDouble).toSeq)
      assert(computed.checksum == plain.checksum)
      for (tensor <- Seq(computed, plain)) {
        val buffer = ByteBuffer.allocateDirect(tensor.bytes)
        val state = new Xxh3
        tensor.send(buffer, state)
        assert(state.value == plain.checksum && buffer.position() == tensor.bytes)
        assert(new Received("float32", Array(rows, width), buffer.flip()).toDoubles.toSeq == all.map(_.toDouble).toSeq)
      }
    }
  }

  test("other types") {
    assert(travelled(new Doubles(Array(0.1, 1e300), Array(2, 1))).toDoubles.toSeq == Seq(0.1, 1e300))
    assert(travelled(new Longs(Array(9L, -5L, 1L << 40), 1, 2)).toDoubles.toSeq == Seq(-5.0, 1099511627776.0))
    assert(travelled(new Ints(Array(9, -5, 7), 1, 2)).toDoubles.toSeq == Seq(-5.0, 7.0))
    assert(travelled(new Bytes("int8", Array(1, -2), 0, 2)).toDoubles.toSeq == Seq(1.0, -2.0))
    assert(travelled(new Bytes("uint8", Array(1, -2), 1, 1)).toDoubles.toSeq == Seq(254.0))
    assert(travelled(new Bytes("bool", Array(1, 0), 0, 2)).toDoubles.toSeq == Seq(1.0, 0.0))
    assertThrows[IllegalArgumentException](new Bytes("float32", Array(1), 0, 1))
    assertThrows[IllegalArgumentException](travelled(new Ints(Array(1), 0, 1)).copyTo(values, 0))
  }

  test("tensors are written one after the other, little endian whatever the buffer was") {
    val buffer = ByteBuffer.allocateDirect(40).order(ByteOrder.BIG_ENDIAN)
    new Ints(Array(1), 0, 1).writeTo(buffer)
    new Floats(Array(2f, 3f), 0, 1, 2).writeTo(buffer)
    new PickedFloats(Array(Array(4f)), Array(0, 1), Array(0), 1).writeTo(buffer)
    new Doubles(Array(5.0), Array(1)).writeTo(buffer)
    new Longs(Array(6L), 0, 1).writeTo(buffer)
    new Bytes("int8", Array(7), 0, 1).writeTo(buffer)
    assert(buffer.position() == 33)
    buffer.flip().order(ByteOrder.LITTLE_ENDIAN)
    assert((buffer.getInt(), buffer.getFloat(), buffer.getFloat(), buffer.getFloat()) == ((1, 2f, 3f, 4f)))
    assert((buffer.getDouble(), buffer.getLong(), buffer.get()) == ((5.0, 6L, 7)))
  }
}
