package lotan.messenger

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.US_ASCII
import java.util

import scala.collection.immutable.VectorMap

/** The wire format, as in Python's `messenger.frames`. `encode` and `decode` are pure functions and inverse to each other.
  *
  * A message is one header frame and one frame per tensor. The header frame is
  * {{{
  * bytes 0..2   "LTN"
  * byte  3      protocol version
  * bytes 4..11  XXH64 (seed 0) of the rest of this frame, little endian
  * bytes 12..   msgpack map {kind, header, tensors, sum}
  * }}}
  * where `tensors` is a list of [name, dtype, shape, place] and `sum` the checksum of the tensors' checksums in order, eight bytes
  * each, little endian. A checksum is XXH3 (64 bits, seed 0) of 1,024 zeros and then of a tensor's bytes. A place is
  * ["inline", frame index] or ["shared", region, offset].
  */
object Frames {
  private val Magic = "LTN".getBytes(US_ASCII)
  private val Version: Byte = 2
  private val Preamble = 12 // bytes before the msgpack map

  /** Returns the frames of a message.
    *
    * Throws FrameError if the receiver would refuse it.
    *
    * @param space
    *   filled with all tensors, one after the other, if they fit; they travel inline otherwise
    */
  def encode(message: Message, limits: Limits, space: Option[Space] = None): Seq[Array[Byte]] = {
    for ((name, tensor) <- message.tensors) checkShape(name, tensor.dtype, tensor.shape.toSeq.map(_.toLong), limits)
    space.filter(_.bytes >= Region.room(message.tensors.map(_._2))) match {
      case Some(found) =>
        val (places, checksums) = write(message.tensors, found).unzip
        Seq(header(message, places, checksum(checksums), limits))
      case None =>
        val payload = message.tensors.map(_._2.toBytes)
        val checksums = message.tensors.zip(payload).map { case ((_, tensor), bytes) => tensor.checksumOf(bytes) }
        header(message, payload.indices.map(Seq[Any]("inline", _)), checksum(checksums), limits) +: payload
    }
  }

  /** Writes tensors into a space, and returns the place and the checksum of each. */
  private def write(tensors: Seq[(String, Tensor)], space: Space): Seq[(Seq[Any], Long)] = {
    var filled = 0
    for ((_, tensor) <- tensors) yield {
      val place = Seq[Any]("shared", space.region, space.offset + filled)
      val state = new Xxh3
      tensor.send(space.memory.slice(filled, tensor.bytes), state)
      filled += Region.padded(tensor.bytes.toLong).toInt
      (place, state.value)
    }
  }

  /** Returns the checksum of tensors' checksums. */
  private[messenger] def checksum(tensors: Iterable[Long]): Long = {
    val state = new Xxh3
    tensors.foreach(state.update)
    state.value
  }

  private def header(message: Message, places: Seq[Seq[Any]], sum: Long, limits: Limits): Array[Byte] = {
    val descriptors = message.tensors.zip(places).map { case ((name, tensor), place) =>
      Seq[Any](name, tensor.dtype, tensor.shape.toSeq, place)
    }
    val body = VectorMap[String, Any](
      "kind" -> message.kind.text,
      "header" -> message.header,
      "tensors" -> descriptors,
      "sum" -> PlainData.word(sum)
    )
    val frame = seal(PlainData.pack(body))
    if (frame.length > limits.headerBytes)
      throw new FrameError(
        s"the header of a ${message.kind} message has ${frame.length} bytes, limit ${limits.headerBytes}"
      )
    frame
  }

  /** Returns the message in these frames. Its tensors are views of the frames or of shared memory.
    *
    * Throws FrameError, whatever is wrong with them; nothing beyond the header has been allocated then. UnmappedError, which is
    * one, if a tensor is in shared memory that this process has not.
    */
  def decode(frames: Seq[Array[Byte]], limits: Limits, regions: Option[Regions] = None): Incoming = {
    if (frames.isEmpty) throw new FrameError("a message without frames arrived; expected a header frame")
    val message = complete(peek(frames.head, limits), frames.tail, limits, regions)
    message.check()
    message
  }

  /** Checks and reads a header frame without its tensors. */
  def peek(frame: Array[Byte], limits: Limits): Envelope = {
    val body = unseal(frame, limits)
    val kind = Kind.of(body("kind"))
    val header = body("header") match {
      case fields: VectorMap[_, _] => fields.asInstanceOf[VectorMap[String, Any]]
      case _ => throw new FrameError(s"the header of a $kind message is not a map")
    }
    Fields.check(kind, header, limits)
    val descriptors = body("tensors") match {
      case some: Seq[_] if some.length <= limits.tensors => some
      case _ => throw new FrameError(s"a $kind message must have a list of at most ${limits.tensors} tensors")
    }
    val sum = body("sum") match {
      case small: Long if small >= 0 => small
      case large: BigInt => large.toLong
      case other => throw new FrameError(s"a $kind message has no valid checksum: ${Show(other)}")
    }
    new Envelope(kind, header, descriptors, sum)
  }

  /** The message of a header frame that has been read, and the frames after it, not checked yet: see `Incoming.check`. Throws as
    * `decode` does, otherwise.
    */
  def complete(
      envelope: Envelope,
      payload: Seq[Array[Byte]],
      limits: Limits,
      regions: Option[Regions] = None
  ): Incoming = {
    val arriving = new Arriving(envelope.kind, envelope.checksum)
    val tensors = views(envelope.descriptors, payload, limits, regions, arriving)
    arriving.expect(tensors.values)
    val shared = tensors.values.map(_.bytes.toLong).sum - payload.map(_.length.toLong).sum
    new Incoming(envelope.kind, envelope.header, tensors, envelope.checksum, shared, Some(arriving))
  }

  private def seal(body: Array[Byte]): Array[Byte] = {
    val frame = new Array[Byte](Preamble + body.length)
    val buffer = ByteBuffer.wrap(frame).order(java.nio.ByteOrder.LITTLE_ENDIAN)
    val _ = buffer.put(Magic).put(Version).putLong(Xxh64.of(body)).put(body)
    frame
  }

  private def unseal(frame: Array[Byte], limits: Limits): Map[String, Any] = {
    if (frame.length > limits.headerBytes)
      throw new FrameError(
        s"a header frame of ${frame.length} bytes exceeds the limit of ${limits.headerBytes} (header_bytes)"
      )
    if (frame.length < Preamble || !util.Arrays.equals(frame, 0, Magic.length, Magic, 0, Magic.length))
      throw new FrameError(
        s"not a message of this protocol: it starts with ${frame.take(8).mkString(" ")}; is another program on this port?"
      )
    if (frame(3) != Version)
      throw new FrameError(
        s"a message of protocol version ${frame(3)} arrived, this side speaks $Version: use equal versions of lotan"
      )
    val expected = ByteBuffer.wrap(frame).order(java.nio.ByteOrder.LITTLE_ENDIAN).getLong(4)
    if (Xxh64.of(frame, Preamble) != expected)
      throw new FrameError("a header frame does not have its checksum: corrupted on the way")
    PlainData.unpack(frame, Preamble, limits) match {
      case body: VectorMap[_, _] if body.keySet == Set("kind", "header", "tensors", "sum") =>
        body.asInstanceOf[VectorMap[String, Any]]
      case _ => throw new FrameError("a header frame is not the map {kind, header, tensors, sum}")
    }
  }

  private def views(
      descriptors: Seq[Any],
      payload: Seq[Array[Byte]],
      limits: Limits,
      regions: Option[Regions],
      arriving: Arriving
  ): VectorMap[String, Received] = {
    val found = descriptors.map(descriptor(_, limits))
    val inline = found.collect { case Descriptor(name, _, _, _, Inline(index)) => (name, index) }
    if (inline.length != payload.length)
      throw new FrameError(s"a message announces ${inline.length} tensors and brings ${payload.length} frames")
    if (found.map(_.size.toLong).sum > limits.messageBytes)
      throw new FrameError(s"a message exceeds the limit of ${limits.messageBytes} bytes (message_bytes)")
    for (((name, index), position) <- inline.zipWithIndex if index != position)
      throw new FrameError(s"tensor ${Show(name)} is at frame $index, expected $position")
    val named = VectorMap.from(found.map(one => one.name -> view(one, payload, regions, arriving)))
    if (named.size != found.length) throw new FrameError("a message brings two tensors of one name")
    named
  }

  private def descriptor(described: Any, limits: Limits): Descriptor = {
    def refuse() = throw new FrameError(s"not a tensor's [name, dtype, shape, place]: ${Show(described)}")
    described match {
      case Seq(name: String, dtype: String, shape: Seq[_], where) =>
        val place = where match {
          case Seq("inline", index: Long) => Inline(index)
          case Seq("shared", region: String, offset: Long) if Fields.isPlace(region, offset) => Shared(region, offset)
          case _ => refuse()
        }
        val size = checkShape(name, dtype, shape, limits)
        Descriptor(name, dtype, shape.asInstanceOf[Seq[Long]].map(_.toInt).toArray, size.toInt, place)
      case _ => refuse()
    }
  }

  private def view(
      tensor: Descriptor,
      payload: Seq[Array[Byte]],
      regions: Option[Regions],
      arriving: Arriving
  ): Received = {
    val memory = tensor.place match {
      case Inline(index) => ByteBuffer.wrap(payload(index.toInt))
      case Shared(region, offset) =>
        regions
          .getOrElse(throw new UnmappedError(s"a tensor is in the region $region: no region is open here"))
          .view(region, offset, tensor.size)
    }
    if (memory.capacity != tensor.size)
      throw new FrameError(
        s"tensor ${Show(tensor.name)} (${tensor.dtype}${tensor.shape.mkString("[", ", ", "]")}) needs" +
          s" ${tensor.size} bytes, its frame has ${memory.capacity}"
      )
    new Received(tensor.dtype, tensor.shape, memory, Some(arriving))
  }

  /** Returns the number of bytes of a tensor with this dtype and shape.
    *
    * Throws FrameError: an unknown dtype, or a shape beyond the limits.
    */
  private def checkShape(name: String, dtype: String, shape: Seq[Any], limits: Limits): Long = {
    val itemSize = Dtype.Sizes.getOrElse(
      dtype,
      throw new FrameError(
        s"tensor ${Show(name)} has dtype ${Show(dtype)}; these travel: ${Dtype.Sizes.keys.mkString(", ")}"
      )
    )
    if (shape.length > limits.dimensions)
      throw new FrameError(s"tensor ${Show(name)} has ${shape.length} dimensions, the limit is ${limits.dimensions}")
    val size = shape.foldLeft(BigInt(itemSize)) {
      case (product, length: Long) if 0 <= length && length <= limits.frameBytes => product * length
      case (_, length) => throw new FrameError(s"tensor ${Show(name)} has a dimension of ${Show(length)}")
    }
    if (size > limits.frameBytes)
      throw new FrameError(
        s"tensor ${Show(name)} has $size bytes, the limit is ${limits.frameBytes} (frame_bytes)"
      )
    size.toLong
  }

  sealed private trait Place
  final private case class Inline(index: Long) extends Place
  final private case class Shared(region: String, offset: Long) extends Place

  final private case class Descriptor(name: String, dtype: String, shape: Array[Int], size: Int, place: Place)
}

/** A header frame that has been checked.
  *
  * @param descriptors
  *   of the tensors, unchecked
  */
final class Envelope private[messenger] (
    val kind: Kind,
    val header: VectorMap[String, Any],
    private[messenger] val descriptors: Seq[Any],
    val checksum: Long
)

/** Shared memory that this process may read. */
trait Regions {

  /** Returns bytes of a region.
    *
    * Throws UnmappedError if it is not open here, FrameError if these bytes are not to be read.
    */
  def view(region: String, offset: Long, size: Int): ByteBuffer
}
