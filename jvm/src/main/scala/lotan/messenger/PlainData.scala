package lotan.messenger

import java.math.BigInteger
import java.nio.charset.CodingErrorAction

import scala.collection.immutable.VectorMap
import scala.util.control.NonFatal

import org.msgpack.core.{MessageFormat, MessagePack, MessagePacker, MessageUnpacker}

/** Plain data in msgpack: null, Boolean, Long, BigInt (beyond Long), Double, String, Array[Byte], Seq, and maps with text keys. */
private[messenger] object PlainData {
  private val Deepest = 512 // nested lists and maps

  private val strict = new MessagePack.UnpackerConfig()
    .withActionOnMalformedString(CodingErrorAction.REPORT)
    .withActionOnUnmappableString(CodingErrorAction.REPORT)

  /** 64 bits as the unsigned number that they are on the wire. */
  def word(bits: Long): Any = if (bits >= 0) bits else BigInt(java.lang.Long.toUnsignedString(bits))

  def pack(value: Any): Array[Byte] = {
    val packer = MessagePack.newDefaultBufferPacker()
    put(packer, value)
    packer.toByteArray
  }

  private def put(packer: MessagePacker, value: Any): Unit = value match {
    case null => { val _ = packer.packNil() }
    case flag: Boolean => { val _ = packer.packBoolean(flag) }
    case number: Int => { val _ = packer.packInt(number) }
    case number: Long => { val _ = packer.packLong(number) }
    case number: BigInt => { val _ = packer.packBigInteger(number.bigInteger) }
    case number: Double => { val _ = packer.packDouble(number) }
    case text: String => { val _ = packer.packString(text) }
    case bytes: Array[Byte] => { val _ = packer.packBinaryHeader(bytes.length).writePayload(bytes) }
    case map: Map[_, _] =>
      packer.packMapHeader(map.size)
      for ((key, item) <- map) {
        packer.packString(key.asInstanceOf[String])
        put(packer, item)
      }
    case items: Seq[_] =>
      packer.packArrayHeader(items.length)
      items.foreach(put(packer, _))
    case other => throw new FrameError(s"a header holds no plain data: ${Show(other)}")
  }

  /** Returns the one value in these bytes.
    *
    * Throws FrameError if they do not, or if it exceeds a limit.
    */
  def unpack(bytes: Array[Byte], from: Int, limits: Limits): Any =
    try {
      val unpacker = strict.newUnpacker(bytes, from, bytes.length - from)
      val value = new Reader(unpacker, limits).value(0)
      if (unpacker.hasNext) throw new FrameError("more follows after its end")
      value
    } catch {
      case NonFatal(error) =>
        throw new FrameError(
          s"a header frame is not the msgpack expected, or exceeds a limit: ${error.getMessage}"
        )
    }

  private final class Reader(unpacker: MessageUnpacker, limits: Limits) {
    def value(depth: Int): Any = {
      if (depth > Deepest) throw new FrameError(s"nested deeper than $Deepest")
      val format = unpacker.getNextFormat
      format match {
        case MessageFormat.NIL => unpacker.unpackNil(); null
        case MessageFormat.BOOLEAN => unpacker.unpackBoolean()
        case MessageFormat.FLOAT32 | MessageFormat.FLOAT64 => unpacker.unpackDouble()
        case MessageFormat.UINT64 => integer(unpacker.unpackBigInteger())
        case MessageFormat.STR8 | MessageFormat.STR16 | MessageFormat.STR32 | MessageFormat.FIXSTR => text()
        case MessageFormat.BIN8 | MessageFormat.BIN16 | MessageFormat.BIN32 =>
          unpacker.readPayload(bounded(unpacker.unpackBinaryHeader(), limits.text, "bytes"))
        case MessageFormat.ARRAY16 | MessageFormat.ARRAY32 | MessageFormat.FIXARRAY =>
          Vector.fill(bounded(unpacker.unpackArrayHeader(), limits.items, "items"))(value(depth + 1))
        case MessageFormat.MAP16 | MessageFormat.MAP32 | MessageFormat.FIXMAP =>
          val size = bounded(unpacker.unpackMapHeader(), limits.items, "items")
          VectorMap.from(Iterator.fill(size)(text() -> value(depth + 1)))
        case _ if format.getValueType.isIntegerType => unpacker.unpackLong()
        case other => throw new FrameError(s"a value of msgpack type $other")
      }
    }

    private def text(): String = {
      val _ = unpacker.getNextFormat.getValueType.isStringType || unexpected()
      val length = unpacker.unpackRawStringHeader()
      val bytes = java.nio.ByteBuffer.wrap(unpacker.readPayload(bounded(length, limits.text, "bytes of text")))
      java.nio.charset.StandardCharsets.UTF_8.newDecoder().decode(bytes).toString
    }

    private def unexpected(): Boolean = throw new FrameError("a key that is no text")

    private def bounded(length: Int, limit: Int, what: String): Int = {
      if (length > limit) throw new FrameError(s"$length $what, the limit is $limit")
      length
    }

    private def integer(number: BigInteger): Any =
      if (number.bitLength < 64) number.longValue else BigInt(number)
  }
}
