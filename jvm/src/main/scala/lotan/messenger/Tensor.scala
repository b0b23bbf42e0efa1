package lotan.messenger

import java.nio.{ByteBuffer, ByteOrder}

import org.apache.spark.unsafe.Platform

/** Numbers that travel: little endian, in C order. Its values must not change while it is under way. */
abstract class Tensor private[messenger] {

  /** Such as float32; one of `Dtype.Sizes`. */
  def dtype: String

  def shape: Array[Int]

  /** Writes its bytes at the buffer's position, which moves on. */
  final def writeTo(target: ByteBuffer): Unit = write(target.order(ByteOrder.LITTLE_ENDIAN))

  /** `Xxh3` of its bytes, computed once: hold on to a tensor that is offered every epoch. */
  def checksum: Long = computed

  private lazy val computed = hash(new Xxh3).value

  final def bytes: Int = Math.toIntExact(shape.foldLeft(Dtype.size(dtype).toLong)(_ * _))

  /** Its bytes, not to be changed. */
  private[messenger] def toBytes: Array[Byte] = {
    val array = new Array[Byte](bytes)
    writeTo(ByteBuffer.wrap(array))
    array
  }

  /** The checksum, where these are its bytes. */
  private[messenger] def checksumOf(bytes: Array[Byte]): Long = new Xxh3().update(bytes).value

  /** Writes its bytes at the buffer's position, and has them hashed: in pieces that are in the cache for both. */
  private[messenger] def send(target: ByteBuffer, state: Xxh3): Unit = {
    writeTo(target)
    val _ = hash(state)
  }

  /** Has its bytes hashed. */
  private[messenger] def hash(state: Xxh3): Xxh3 = state.update(toBytes)

  protected def write(target: ByteBuffer): Unit
}

/** Consecutive rows of an array: float32 `[rows x width]`. Nothing is copied before it is written.
  *
  * @param offset
  *   of the first row's first number
  */
final class Floats(values: Array[Float], offset: Int, rows: Int, width: Int) extends Tensor {
  override def dtype: String = "float32"
  override def shape: Array[Int] = Array(rows, width)

  override private[messenger] def hash(state: Xxh3): Xxh3 = state.update(values, offset, rows * width)

  override private[messenger] def send(target: ByteBuffer, state: Xxh3): Unit =
    Floats.send(target.order(ByteOrder.LITTLE_ENDIAN), values, offset, rows * width, state)

  override protected def write(target: ByteBuffer): Unit = Floats.put(target, values, offset, rows * width)
}

object Floats {
  private[messenger] final val Piece = 1 << 12 // numbers that stay in the processor's nearest cache

  /** Writes numbers at a buffer's position, and has them hashed. */
  private[messenger] def send(target: ByteBuffer, values: Array[Float], from: Int, length: Int, state: Xxh3): Unit = {
    var at = 0
    while (at < length) {
      val some = math.min(Piece, length - at)
      val _ = state.update(values, from + at, some)
      put(target, values, from + at, some)
      at += some
    }
  }

  private[messenger] def put(target: ByteBuffer, values: Array[Float], offset: Int, length: Int): Unit = {
    val _ = target.asFloatBuffer().put(values, offset, length)
    val _ = target.position(target.position() + 4 * length)
  }
}

/** Rows that are computed whenever they are written: float32 `[rows x width]`. Some at a time, which stay in the cache.
  *
  * @param numbers
  *   per row; asked for when it is sent
  * @param compute
  *   writes rows `from until until`, counted from this tensor's first, to an array; the same numbers each time
  */
final class ComputedFloats(rows: Int, numbers: => Int, compute: (Int, Int, Array[Float]) => Unit) extends Tensor {
  private lazy val width = numbers

  override def dtype: String = "float32"
  override def shape: Array[Int] = Array(rows, width)

  override private[messenger] def hash(state: Xxh3): Xxh3 = {
    each((some, length) => { val _ = state.update(some, 0, length) })
    state
  }

  override private[messenger] def send(target: ByteBuffer, state: Xxh3): Unit = {
    val into = target.order(ByteOrder.LITTLE_ENDIAN)
    each((some, length) => Floats.send(into, some, 0, length, state))
  }

  override protected def write(target: ByteBuffer): Unit = each(Floats.put(target, _, 0, _))

  private def each(action: (Array[Float], Int) => Unit): Unit = {
    val atOnce = math.max(1, math.min(rows, ComputedFloats.AtOnce / width))
    val some = new Array[Float](atOnce * width)
    var from = 0
    while (from < rows) {
      val until = math.min(rows, from + atOnce)
      compute(from, until, some)
      action(some, (until - from) * width)
      from = until
    }
  }
}

private object ComputedFloats {
  val AtOnce: Int = 1 << 15 // numbers: 128 KiB
}

/** Rows picked from several arrays: float32 `[rows x width]`. Nothing is copied before it is written.
  *
  * @param arrays
  *   rows, array after array
  * @param starts
  *   `[arrays + 1]`: the number of each array's first row
  * @param rows
  *   which rows, ascending
  */
final class PickedFloats(arrays: Array[Array[Float]], starts: Array[Int], rows: Array[Int], width: Int) extends Tensor {
  require(starts.length == arrays.length + 1, s"${arrays.length} arrays and ${starts.length} starts")

  override def dtype: String = "float32"
  override def shape: Array[Int] = Array(rows.length, width)

  override private[messenger] def hash(state: Xxh3): Xxh3 = {
    each((array, at) => { val _ = state.update(array, at, width) })
    state
  }

  override private[messenger] def send(target: ByteBuffer, state: Xxh3): Unit = {
    val into = target.order(ByteOrder.LITTLE_ENDIAN)
    each((array, at) => Floats.send(into, array, at, width, state))
  }

  private def each(action: (Array[Float], Int) => Unit): Unit = {
    var array = 0
    var i = 0
    while (i < rows.length) {
      while (rows(i) >= starts(array + 1)) array += 1
      action(arrays(array), (rows(i) - starts(array)) * width)
      i += 1
    }
  }

  override protected def write(target: ByteBuffer): Unit = {
    val floats = target.asFloatBuffer()
    each((array, at) => { val _ = floats.put(array, at, width) })
    val _ = target.position(target.position() + 4 * rows.length * width)
  }
}

/** Plain numbers: float32 `[length]`. */
final class Numbers(values: Array[Float]) extends Tensor {
  override def dtype: String = "float32"
  override def shape: Array[Int] = Array(values.length)

  override protected def write(target: ByteBuffer): Unit = Floats.put(target, values, 0, values.length)
}

/** Float64 of any shape. */
final class Doubles(private[messenger] val values: Array[Double], override val shape: Array[Int]) extends Tensor {
  override def dtype: String = "float64"

  override private[messenger] def hash(state: Xxh3): Xxh3 =
    state.update(values, Platform.DOUBLE_ARRAY_OFFSET.toLong, 8L * values.length)

  override protected def write(target: ByteBuffer): Unit = {
    val _ = target.asDoubleBuffer().put(values)
    val _ = target.position(target.position() + 8 * values.length)
  }
}

/** Consecutive int64: `[length]`. */
final class Longs(values: Array[Long], offset: Int, length: Int) extends Tensor {
  override def dtype: String = "int64"
  override def shape: Array[Int] = Array(length)

  override protected def write(target: ByteBuffer): Unit = {
    val _ = target.asLongBuffer().put(values, offset, length)
    val _ = target.position(target.position() + 8 * length)
  }
}

/** Consecutive int32: `[length]`. */
final class Ints(values: Array[Int], offset: Int, length: Int) extends Tensor {
  override def dtype: String = "int32"
  override def shape: Array[Int] = Array(length)

  override protected def write(target: ByteBuffer): Unit = {
    val _ = target.asIntBuffer().put(values, offset, length)
    val _ = target.position(target.position() + 4 * length)
  }
}

/** Consecutive elements of one byte: `[length]`.
  *
  * @param dtype
  *   int8, uint8 or bool
  */
final class Bytes(override val dtype: String, values: Array[Byte], offset: Int, length: Int) extends Tensor {
  require(Dtype.Sizes.get(dtype).contains(1), s"bytes cannot be $dtype")

  override def shape: Array[Int] = Array(length)

  override protected def write(target: ByteBuffer): Unit = { val _ = target.put(values, offset, length) }
}
