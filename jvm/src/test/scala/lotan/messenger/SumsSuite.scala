package lotan.messenger

import java.nio.{ByteBuffer, ByteOrder}

import org.scalatest.funsuite.AnyFunSuite

class SumsSuite extends AnyFunSuite {
  private def floats(shape: Array[Int], values: Float*): Received = {
    val bytes = ByteBuffer.allocate(4 * values.length).order(ByteOrder.LITTLE_ENDIAN)
    values.foreach(bytes.putFloat)
    new Received("float32", shape, bytes.flip())
  }

  private def values(sums: Sums): Map[String, Seq[Double]] = sums.tensors.map { case (name, tensor) =>
    name -> new Received(tensor.dtype, tensor.shape, ByteBuffer.wrap(tensor.toBytes)).toDoubles.toSeq
  }.toMap

  test("sums are float64, in the order of adding") {
    val sums = new Sums
    val parts = Seq(0.1f, 1e9f, -1e9f, 0.3f, 1e-7f)
    for (part <- parts) sums.add(Map("w" -> floats(Array(2, 1), part, -part)))
    val expected = parts.map(_.toDouble).reduceLeft(_ + _)
    assert(values(sums) == Map("w" -> Seq(expected, -expected)))
    assert(expected != parts.map(_.toDouble).reverse.reduceLeft(_ + _), "an order that does not matter tests nothing")
  }

  test("a sum of one float64 tensor is sent on as it came, of two it is their sum") {
    def doubles(values: Double*) = {
      val array = new Doubles(values.toArray, Array(values.length)).toBytes
      new Received("float64", Array(values.length), ByteBuffer.wrap(array))
    }
    val first = doubles(0.1, 1e300)
    val sums = new Sums
    sums.add(Map("w" -> first))
    assert(sums.tensors.head._2.toBytes eq first.toBytes)
    val alone = sums.checksum
    sums.add(Map("w" -> doubles(0.2, -1.0)))
    assert(values(sums) == Map("w" -> Seq(0.1 + 0.2, 1e300)) && first.toDoubles.toSeq == Seq(0.1, 1e300))
    sums.add(Map("w" -> doubles(-0.2, 0.0)))
    val again = new Sums
    again.add(Map("w" -> doubles(0.1 + 0.2 - 0.2, 1e300)))
    assert(sums.checksum == again.checksum && sums.checksum != alone)
  }

  test("another shape is refused") {
    val sums = new Sums
    sums.add(Map("w" -> floats(Array(2, 1), 1, 2)))
    val error = intercept[MessengerError](sums.add(Map("w" -> floats(Array(2), 1, 2))))
    assert(error.getMessage.contains("'w' of shape (2,) to a sum of shape (2, 1)"))
  }

  test("the checksum is Python's, in whatever order names came") {
    val sums = new Sums // messenger.sums.Sums().add({"b": [[1.5]], "a": [1, -2], "ö": 7})
    sums.add(Seq("b" -> floats(Array(1, 1), 1.5f), "a" -> floats(Array(2), 1f, -2f), "ö" -> floats(Array(), 7f)))
    assert(sums.checksum == java.lang.Long.parseUnsignedLong("17549716303862701866"))
    assert(sums.tensors.map(_._1) == Seq("b", "a", "ö"))
  }
}
