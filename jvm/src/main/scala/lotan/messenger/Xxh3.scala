package lotan.messenger

import org.apache.spark.unsafe.Platform

/** XXH3 (https://xxhash.com, 64 bits, seed 0) of a block of zeros and then of bytes that come piece by piece.
  *
  * XXH3 has rules of its own for short input: behind a block of zeros none is short. With vector operations it is three times as
  * fast as XXH64, on either side. Reads memory in the machine's byte order, which has to be little endian: see `Xxh64`.
  */
final class Xxh3 {
  import Xxh3._

  private val lanes = Start.clone()
  private val rest = new Array[Float](Block / 4) // what may be the last block: at least one byte of it is there
  private var resting = Block
  private val ending = new Array[Byte](2 * Stripe) // before `rest` came these last bytes: `Stripe` of them
  private var total = Block.toLong

  def update(bytes: Array[Byte]): Xxh3 = update(bytes, Platform.BYTE_ARRAY_OFFSET.toLong, bytes.length.toLong)

  /** Takes eight bytes, little endian. */
  def update(number: Long): Xxh3 = update(Array(number), Platform.LONG_ARRAY_OFFSET.toLong, 8L)

  def update(values: Array[Float], from: Int, length: Int): Xxh3 =
    update(values, Platform.FLOAT_ARRAY_OFFSET + 4L * from, 4L * length)

  /** Takes the `length` bytes of an array that begin at an offset as `Platform` counts them. */
  def update(base: AnyRef, offset: Long, length: Long): Xxh3 = {
    total += length
    var taken = 0L
    if (resting + length > Block) {
      taken = (Block - resting).toLong
      keep(base, offset, taken)
      blocks(rest, Platform.FLOAT_ARRAY_OFFSET.toLong, 1)
      val whole = ((length - taken - 1) / Block).toInt // not the block that has the last byte
      blocks(base, offset + taken, whole)
      taken += whole.toLong * Block
      resting = 0
    }
    keep(base, offset + taken, length - taken)
    this
  }

  private def keep(base: AnyRef, offset: Long, length: Long): Unit = {
    Platform.copyMemory(base, offset, rest, Platform.FLOAT_ARRAY_OFFSET.toLong + resting, length)
    resting += length.toInt
  }

  /** Takes whole blocks, which are not the last. */
  private def blocks(base: AnyRef, offset: Long, count: Int): Unit = if (count > 0) {
    base match {
      case floats: Array[Float] if vectors && offset % 4 == 0 =>
        VectorStripes.blocks(lanes, Secret, floats, ((offset - Platform.FLOAT_ARRAY_OFFSET) / 4).toInt, count)
      case bytes: Array[Byte] if vectors =>
        VectorStripes.blocks(lanes, Secret, bytes, (offset - Platform.BYTE_ARRAY_OFFSET).toInt, count)
      case _ => for (block <- 0 until count; lane <- 0 until Lanes by 2) pair(base, offset + block.toLong * Block, lane)
    }
    val last = offset + count.toLong * Block - Stripe
    Platform.copyMemory(base, last, ending, Platform.BYTE_ARRAY_OFFSET.toLong, Stripe.toLong)
  }

  /** Takes two neighbouring lanes of a block. */
  private def pair(base: AnyRef, offset: Long, lane: Int): Unit = {
    var a = lanes(lane)
    var b = lanes(lane + 1)
    var stripe = 0
    while (stripe < Stripes) {
      val at = offset + Stripe * stripe + 8 * lane
      val v = Platform.getLong(base, at)
      val w = Platform.getLong(base, at + 8)
      a += w + product(v ^ Secret(stripe + lane))
      b += v + product(w ^ Secret(stripe + lane + 1))
      stripe += 1
    }
    lanes(lane) = scrambled(a, Secret(Stripes + lane))
    lanes(lane + 1) = scrambled(b, Secret(Stripes + lane + 1))
  }

  /** Of all that came so far. */
  def value: Long = {
    val sums = lanes.clone()
    val start = Platform.FLOAT_ARRAY_OFFSET.toLong
    for (stripe <- 0 until (resting - 1) / Stripe) add(sums, rest, start + stripe * Stripe, 8 * stripe)
    // The last stripe, which may begin in the block before.
    Platform.copyMemory(
      rest,
      start,
      ending,
      Platform.BYTE_ARRAY_OFFSET.toLong + Stripe,
      math.min(resting, Stripe).toLong
    )
    if (resting < Stripe) add(sums, ending, Platform.BYTE_ARRAY_OFFSET.toLong + resting, LastSecret)
    else add(sums, rest, start + resting - Stripe, LastSecret)
    merged(sums, total)
  }
}

object Xxh3 {
  private[messenger] final val Block = 1024 // bytes between two scrambles
  private final val Stripe = 64
  private final val Stripes = Block / Stripe
  private final val Lanes = 8

  private final val LastSecret = 121 // bytes of the secret before those for the last stripe
  private final val MergeSecret = 11
  private final val Prime32 = 0x9e3779b1L
  private final val Prime64 = 0x9e3779b185ebca87L

  private val Start = Array(
    0xc2b2ae3dL,
    Prime64,
    0xc2b2ae3d27d4eb4fL,
    0x165667b19e3779f9L,
    0x85ebca77c2b2ae63L,
    0x85ebca77L,
    0x27d4eb2f165667c5L,
    Prime32
  )

  private val Secret = Array(0xbe4ba423396cfeb8L, 0x1cad21f72c81017cL, 0xdb979083e96dd4deL, 0x1f67b3b7a4a44072L,
    0x78e5c0cc4ee679cbL, 0x2172ffcc7dd05a82L, 0x8e2443f7744608b8L, 0x4c263a81e69035e0L, 0xcb00c391bb52283cL,
    0xa32e531b8b65d088L, 0x4ef90da297486471L, 0xd8acdea946ef1938L, 0x3f349ce33f76faa8L, 0x1d4f0bc7c7bbdcf9L,
    0x3159b4cd4be0518aL, 0x647378d9c97e9fc8L, 0xc3ebd33483acc5eaL, 0xeb6313faffa081c5L, 0x49daf0b751dd0d17L,
    0x9e68d429265516d3L, 0xfca1477d58be162bL, 0xce31d07ad1b8f88fL, 0x280416958f3acb45L, 0x7e404bbbcafbd7afL)

  /** Whether the JVM and the processor have vector operations on eight longs. */
  private val vectors = Incubator.hasVectors && VectorStripes.fit

  /** Eight bytes of the secret. */
  private def secret(byte: Int): Long = Platform.getLong(Secret, Platform.LONG_ARRAY_OFFSET.toLong + byte)

  private def product(keyed: Long): Long = (keyed & 0xffffffffL) * (keyed >>> 32)

  private def scrambled(lane: Long, secret: Long): Long = (lane ^ (lane >>> 47) ^ secret) * Prime32

  /** Adds a stripe with the secret from a byte on. */
  private def add(lanes: Array[Long], base: AnyRef, offset: Long, secretByte: Int): Unit =
    for (lane <- 0 until Lanes) {
      val word = Platform.getLong(base, offset + 8 * lane)
      lanes(lane ^ 1) += word
      lanes(lane) += product(word ^ secret(secretByte + 8 * lane))
    }

  private def merged(lanes: Array[Long], total: Long): Long = {
    var hash = total * Prime64
    for (lane <- 0 until Lanes by 2) {
      val at = MergeSecret + 8 * lane
      hash += folded(lanes(lane) ^ secret(at), lanes(lane + 1) ^ secret(at + 8))
    }
    hash = (hash ^ (hash >>> 37)) * 0x165667919e3779f9L
    hash ^ (hash >>> 32)
  }

  /** The two halves of the 128 bits of an unsigned product, xor. */
  private def folded(a: Long, b: Long): Long = (a * b) ^ (Math.multiplyHigh(a, b) + ((a >> 63) & b) + ((b >> 63) & a))
}
