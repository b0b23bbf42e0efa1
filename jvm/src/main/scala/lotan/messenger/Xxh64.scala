package lotan.messenger

import java.lang.Long.rotateLeft
import java.nio.ByteOrder

import org.apache.spark.unsafe.Platform

/** XXH64 (https://xxhash.com, seed 0) of bytes that come piece by piece; Spark's own wants them all at once.
  *
  * Reads memory in the machine's byte order, which has to be little endian.
  */
final class Xxh64 {
  import Xxh64._

  private var lane0 = 0x60ea27eeadc0b5d6L // Prime1 + Prime2, which overflow
  private var lane1 = Prime2
  private var lane2 = 0L
  private var lane3 = -Prime1
  private var total = 0L
  private val rest = new Array[Byte](Stripe) // of a stripe that is not complete
  private var resting = 0

  def update(bytes: Array[Byte]): Xxh64 = update(bytes, Platform.BYTE_ARRAY_OFFSET.toLong, bytes.length.toLong)

  def update(number: Long): Xxh64 = update(Array(number))

  def update(values: Array[Long]): Xxh64 = update(values, Platform.LONG_ARRAY_OFFSET.toLong, 8L * values.length)

  /** Takes the `length` bytes of an array that begin at an offset as `Platform` counts them. */
  def update(base: AnyRef, offset: Long, length: Long): Xxh64 = {
    total += length
    if (resting + length < Stripe) keep(base, offset, length)
    else {
      val completing = if (resting == 0) 0L else (Stripe - resting).toLong
      if (completing > 0) {
        keep(base, offset, completing)
        resting = 0
        stripes(rest, Platform.BYTE_ARRAY_OFFSET.toLong, Stripe.toLong)
      }
      val whole = (length - completing) / Stripe * Stripe
      stripes(base, offset + completing, whole)
      keep(base, offset + completing + whole, length - completing - whole)
    }
    this
  }

  /** Of all that came so far. */
  def value: Long = {
    var hash =
      if (total < Stripe) Prime5
      else {
        val mixed = rotateLeft(lane0, 1) + rotateLeft(lane1, 7) + rotateLeft(lane2, 12) + rotateLeft(lane3, 18)
        merge(merge(merge(merge(mixed, lane0), lane1), lane2), lane3)
      }
    hash += total
    avalanche(finish(hash))
  }

  def copy: Xxh64 = {
    val other = new Xxh64
    other.lane0 = lane0
    other.lane1 = lane1
    other.lane2 = lane2
    other.lane3 = lane3
    other.total = total
    other.resting = resting
    System.arraycopy(rest, 0, other.rest, 0, resting)
    other
  }

  private def keep(base: AnyRef, offset: Long, length: Long): Unit = {
    Platform.copyMemory(base, offset, rest, Platform.BYTE_ARRAY_OFFSET.toLong + resting, length)
    resting += length.toInt
  }

  private def stripes(base: AnyRef, offset: Long, length: Long): Unit = {
    var a = lane0
    var b = lane1
    var c = lane2
    var d = lane3
    val count = (length / Stripe).toInt
    var i = 0 // an int: the JIT compiler knows how often such a loop runs
    while (i < count) {
      val at = offset + i.toLong * Stripe
      a = round(a, Platform.getLong(base, at))
      b = round(b, Platform.getLong(base, at + 8))
      c = round(c, Platform.getLong(base, at + 16))
      d = round(d, Platform.getLong(base, at + 24))
      i += 1
    }
    lane0 = a
    lane1 = b
    lane2 = c
    lane3 = d
  }

  /** Mixes in what is no whole stripe. */
  private def finish(start: Long): Long = {
    var hash = start
    var at = 0
    while (at + 8 <= resting) {
      val word = Platform.getLong(rest, Platform.BYTE_ARRAY_OFFSET.toLong + at)
      hash = rotateLeft(hash ^ round(0, word), 27) * Prime1 + Prime4
      at += 8
    }
    if (at + 4 <= resting) {
      val word = Platform.getInt(rest, Platform.BYTE_ARRAY_OFFSET.toLong + at) & 0xffffffffL
      hash = rotateLeft(hash ^ word * Prime1, 23) * Prime2 + Prime3
      at += 4
    }
    while (at < resting) {
      hash = rotateLeft(hash ^ (rest(at) & 0xff) * Prime5, 11) * Prime1
      at += 1
    }
    hash
  }
}

object Xxh64 {
  require(
    ByteOrder.nativeOrder == ByteOrder.LITTLE_ENDIAN,
    "this machine is big endian; the messenger's checksums and tensors need a little endian one"
  )

  private val Stripe = 32
  private final val Prime1 = 0x9e3779b185ebca87L
  private final val Prime2 = 0xc2b2ae3d27d4eb4fL
  private final val Prime3 = 0x165667b19e3779f9L
  private final val Prime4 = 0x85ebca77c2b2ae63L
  private final val Prime5 = 0x27d4eb2f165667c5L

  def of(bytes: Array[Byte], from: Int = 0): Long =
    new Xxh64().update(bytes, Platform.BYTE_ARRAY_OFFSET.toLong + from, (bytes.length - from).toLong).value

  private def round(lane: Long, word: Long): Long = rotateLeft(lane + word * Prime2, 31) * Prime1

  private def merge(hash: Long, lane: Long): Long = (hash ^ round(0, lane)) * Prime1 + Prime4

  private def avalanche(start: Long): Long = {
    var hash = start
    hash = (hash ^ (hash >>> 33)) * Prime2
    hash = (hash ^ (hash >>> 29)) * Prime3
    hash ^ (hash >>> 32)
  }
}
