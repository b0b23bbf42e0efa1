package lotan.messenger

import scala.util.Random

import org.apache.spark.sql.catalyst.expressions.XXH64
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String
import org.scalatest.funsuite.AnyFunSuite

import lotan.{LongIds, TextIds}

class Xxh64Suite extends AnyFunSuite {
  private val random = new Random(7)
  private val data = new Array[Byte](300)
  random.nextBytes(data)

  test("published values") {
    assert(Xxh64.of("".getBytes) == 0xef46db3751d8e999L)
    assert(Xxh64.of("abc".getBytes) == 0x44bc2cf5ad770999L)
  }

  test("equal to Spark's for every length, however the bytes come") {
    for (length <- 0 to data.length) {
      val expected = XXH64.hashUnsafeBytes(data, Platform.BYTE_ARRAY_OFFSET.toLong, length, 0)
      val state = new Xxh64
      var at = 0
      while (at < length) {
        val next = math.min(length - at, random.nextInt(70))
        state.update(data.slice(at, at + next))
        at += next
      }
      assert(state.value == expected, length)
      assert(state.copy.update(data).value == new Xxh64().update(data.take(length) ++ data).value, length)
      assert(state.value == expected, "reading a value or a copy changes nothing")
    }
  }

  test("digests of ids are those of Python") { // messenger.frames.digest of [3, -1, 2**40] and of ["a", "ö", ""]
    assert(Digest.of(new LongIds(Array(3L, -1L, 1L << 40))) == java.lang.Long.parseUnsignedLong("14026661494363780184"))
    assert(
      Digest.of(new TextIds(Array("a", "ö", "").map(UTF8String.fromString))) ==
        java.lang.Long.parseUnsignedLong("10932328547477599961")
    )
  }
}
