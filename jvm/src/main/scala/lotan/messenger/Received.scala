package lotan.messenger

import java.nio.{ByteBuffer, ByteOrder}

import org.apache.spark.unsafe.Platform

/** A tensor that was received, as a view of its frame or of shared memory.
  *
  * @param arrival
  *   of its message, if that is not checked yet: then whoever reads it finds out
  */
final class Received private[messenger] (
    override val dtype: String,
    override val shape: Array[Int],
    frame: ByteBuffer,
    arrival: Option[Arriving]
) extends Tensor {
  def this(dtype: String, shape: Array[Int], frame: ByteBuffer) = this(dtype, shape, frame, None)

  private var hashed = Option.empty[Long]
  private val content = frame.asReadOnlyBuffer().order(ByteOrder.LITTLE_ENDIAN)

  /** The number of elements. */
  def size: Int = content.limit() / Dtype.size(dtype)

  /** Copies all numbers, which are float32, to consecutive places, and hashes them on the way: see `Incoming.check`. */
  def copyTo(into: Array[Float], at: Int): Unit = {
    require(dtype == "float32", s"a tensor of $dtype was read as float32")
    val floats = content.asFloatBuffer()
    if (hashed.isDefined) { val _ = floats.get(into, at, size) }
    else {
      val state = new Xxh3
      while (floats.hasRemaining) {
        val from = at + floats.position()
        val some = math.min(Floats.Piece, floats.remaining)
        floats.get(into, from, some)
        val _ = state.update(into, from, some)
      }
      hashed = Some(state.value)
    }
  }

  override def checksum: Long = {
    if (hashed.isEmpty) hashed = Some(hash(new Xxh3).value)
    hashed.get
  }

  override private[messenger] def checksumOf(bytes: Array[Byte]): Long = checksum

  /** Returns all elements as float64. Throws FrameError if they were corrupted on the way. */
  def toDoubles: Array[Double] = {
    arrival.foreach(_.check())
    dtype match {
      case "float64" => { val all = new Array[Double](size); content.asDoubleBuffer().get(all); all }
      case "float32" => Array.tabulate(size)(i => content.getFloat(4 * i).toDouble)
      case "int64" => Array.tabulate(size)(i => content.getLong(8 * i).toDouble)
      case "int32" => Array.tabulate(size)(i => content.getInt(4 * i).toDouble)
      case "int8" => Array.tabulate(size)(content.get(_).toDouble)
      case _ => Array.tabulate(size)(i => (content.get(i) & 0xff).toDouble)
    }
  }

  override private[messenger] def toBytes: Array[Byte] =
    if (whole) frame.array else super.toBytes

  /** Returns true if an array has the tensor's bytes and nothing else. */
  private[messenger] def whole: Boolean = frame.hasArray && frame.array.length == content.limit()

  override private[messenger] def hash(state: Xxh3): Xxh3 = if (whole) state.update(frame.array)
  else {
    val left = content.duplicate()
    val piece = new Array[Byte](math.min(left.limit(), 4 * Floats.Piece)) // stays in the cache
    while (left.hasRemaining) {
      val length = math.min(left.remaining, piece.length)
      left.get(piece, 0, length)
      val _ = state.update(piece, Platform.BYTE_ARRAY_OFFSET.toLong, length.toLong)
    }
    state
  }

  override protected def write(target: ByteBuffer): Unit = { val _ = target.put(content.duplicate()) }
}
