package lotan.messenger

import scala.util.Random

import org.apache.spark.unsafe.Platform
import org.scalatest.funsuite.AnyFunSuite

class Xxh3Suite extends AnyFunSuite {
  private val random = new Random(7)
  private val data = Array.tabulate(8192)(i => (i * 131 + (i >> 8)).toByte)
  private val floats = new Array[Float](data.length / 4)
  Platform.copyMemory(data, Platform.BYTE_ARRAY_OFFSET.toLong, floats, Platform.FLOAT_ARRAY_OFFSET.toLong, 8192)

  private def of(length: Int): Long = new Xxh3().update(data.take(length)).value

  private def python(value: String): Long = java.lang.Long.parseUnsignedLong(value)

  // xxhash.xxh3_64_intdigest(bytes(1024) + data[:length])
  test("the published algorithm's values, around the ends of stripes and blocks") {
    assert(of(0) == python("16023549825231321409"))
    assert(of(1) == python("7254426422452995363"))
    assert(of(63) == python("1958683078033555304"))
    assert(of(64) == python("2296933743566449454"))
    assert(of(65) == python("13066840010100106657"))
    assert(of(1023) == python("10129370247116002395"))
    assert(of(1024) == python("15109065720860163954"))
    assert(of(1025) == python("16668416230040938698"))
    assert(of(8192) == python("1771800497842410070"))
  }

  test("all lengths, as Python has them") { // xxh64 of all their values, little endian
    val all = new Xxh64
    for (length <- 0 to 3000) all.update(of(length))
    assert(all.value == python("8182529898739778539"))
  }

  test("the same in pieces, and of floats") {
    for (length <- Seq(0, 4, 1020, 1024, 1028, 2048, 4096, 5000, 8192)) {
      val pieces = new Xxh3
      var at = 0
      while (at < length) {
        val next = math.min(length - at, if (random.nextBoolean()) 4 * random.nextInt(40) else 4 * random.nextInt(900))
        if (random.nextBoolean()) pieces.update(data.slice(at, at + next))
        else pieces.update(floats, at / 4, next / 4)
        at += next
        if (random.nextInt(4) == 0) pieces.value // changes nothing
      }
      assert(pieces.value == of(length), length)
      assert(new Xxh3().update(floats, 0, length / 4).value == of(length), length)
    }
  }

  test("floats behind bytes that are no multiple of four") {
    val state = new Xxh3().update(data.take(3)).update(floats, 0, floats.length)
    assert(state.value == new Xxh3().update(data.take(3) ++ data).value)
  }
}
