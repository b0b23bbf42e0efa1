package lotan.messenger

import java.nio.ByteBuffer

import scala.collection.immutable.VectorMap

import org.scalatest.Assertion
import org.scalatest.funsuite.AnyFunSuite

class FramesSuite extends AnyFunSuite {
  private val limits = Limits()
  private val result = Vectors.meaning("result")._1

  private def hex(frames: Seq[Array[Byte]]): Seq[String] = frames.map(_.map(b => f"$b%02x").mkString)

  private def same(a: Tensor, b: Tensor): Boolean =
    a.dtype == b.dtype && a.shape.sameElements(b.shape) && a.toBytes.sameElements(b.toBytes)

  test("there are vectors") {
    assert(Vectors.names("valid").length >= 11 && Vectors.names("invalid").length >= 8)
  }

  for (name <- Vectors.names("valid")) test(s"decoding $name gives its meaning, encoding that gives its bytes") {
    val (meaning, checksum) = Vectors.meaning(name)
    val frames = Vectors.frames("valid", name)
    val message = Frames.decode(frames, limits)
    assert(message.kind == meaning.kind && message.header == meaning.header)
    assert(PlainData.word(message.checksum) == checksum)
    assert(message.tensors.keys.toSeq == meaning.tensors.map(_._1))
    for ((key, tensor) <- meaning.tensors) assert(same(message.tensors(key), tensor), key)
    assert(hex(Frames.encode(meaning, limits)) == hex(frames))
  }

  for (name <- Vectors.names("invalid")) test(s"what is wrong is refused: $name") {
    assertThrows[FrameError](Frames.decode(Vectors.frames("invalid", name), limits))
  }

  private def refused(message: Message, words: String): Assertion = {
    val error = intercept[FrameError](Frames.decode(Frames.encode(message, limits), limits))
    assert(error.getMessage.contains(words))
  }

  test("a header has the fields of its kind, each of its type") {
    refused(Message(Kind.Lost), "lacks text")
    refused(Message(Kind.Ping, "surplus" -> 1L), "unknown field 'surplus'")
    refused(Message(Kind.Close, "ticket" -> -1L), "ticket=-1")
    refused(Message(Kind.Close, "ticket" -> "1"), "ticket='1'")
    refused(Message(Kind.Need, "ticket" -> 1L, "chunk" -> 1L, "names" -> Seq(1L)), "names=")
    refused(Message(Kind.Gone, "name" -> "x" * 1025), "name=")
    refused(Message(Kind.Lost, "text" -> "x" * 65537), "exceeds a limit: 65537")
    refused(Message(Kind.Forget, "run" -> null), "run=null")
  }

  test("deep nesting, keys that are no text and long lists are refused") {
    def program(value: Any) = Message(Kind.Data, "what" -> "stage", "program" -> VectorMap("x" -> value))
    refused(program((1 to 600).foldLeft(0L: Any)((inner, _) => Seq(inner))), "nested deeper")
    refused(program(Seq.fill(16385)(0L)), "16385 items")
    val frames = Frames.encode(program(VectorMap("key" -> 1L)), limits)
    assert(Frames.decode(frames, limits).header("program") == VectorMap("x" -> VectorMap("key" -> 1L)))
    val bytes = PlainData.pack(VectorMap("a" -> 1L))
    bytes(1) = 0x11 // a small number
    assertThrows[FrameError](PlainData.unpack(bytes.take(2) ++ bytes.drop(3), 0, limits))
    assertThrows[FrameError](PlainData.unpack(bytes.take(1), 0, limits))
    assertThrows[FrameError](PlainData.unpack(PlainData.pack(1L) ++ PlainData.pack(2L), 0, limits))
  }

  test("tensors beyond the limits are refused by either side") {
    val small = Limits(frameBytes = 15)
    assertThrows[FrameError](Frames.encode(result, small))
    assertThrows[FrameError](Frames.decode(Frames.encode(result, limits), small))
    assertThrows[FrameError](Frames.decode(Frames.encode(result, limits), Limits(messageBytes = 15)))
    assertThrows[FrameError](Frames.decode(Frames.encode(result, limits), Limits(dimensions = 1)))
    assertThrows[FrameError](Frames.decode(Frames.encode(result, limits), Limits(tensors = 0)))
    assertThrows[FrameError](Frames.encode(result, Limits(headerBytes = 20)))
  }

  test("any flipped bit of a message is noticed") {
    val frames = Frames.encode(result, limits)
    for (frame <- frames.indices; byte <- frames(frame).indices; bit <- 0 until 8) {
      val damaged = frames.map(_.clone())
      damaged(frame)(byte) = (damaged(frame)(byte) ^ 1 << bit).toByte
      assertThrows[FrameError](Frames.decode(damaged, limits))
    }
  }

  private val regionName = "lotan-4711-12-0123456789abcdef"

  /** One region that is open. */
  private final class GivenRegion(content: ByteBuffer) extends Regions {
    override def view(region: String, offset: Long, size: Int): ByteBuffer = {
      if (region != regionName) throw new UnmappedError(s"no region $region")
      if (offset + size > content.capacity) throw new FrameError("beyond the region")
      content.slice(offset.toInt, size)
    }
  }

  for (name <- Vectors.names("shared")) test(s"shared memory is read and written: $name") {
    val (meaning, _) = Vectors.meaning(name, "shared")
    val frames = Vectors.frames("shared", name)
    val message = Frames.decode(frames, limits, Some(new GivenRegion(ByteBuffer.wrap(Vectors.region(name)))))
    assert(message.kind == meaning.kind && message.header == meaning.header)
    for ((key, tensor) <- meaning.tensors) assert(same(message.tensors(key), tensor), key)
    val everything = meaning.tensors.map(_._2.bytes).sum
    assert(message.shared == (if (name.endsWith("_inline")) 0 else everything))

    val content = ByteBuffer.allocateDirect(512)
    content.duplicate().put(regionName.takeRight(16).getBytes)
    val space = new Space(regionName, 128, content.slice(128, 320))
    assert(hex(Frames.encode(meaning, limits, Some(space))) == hex(frames))
    val written = new Array[Byte](512)
    content.get(written)
    assert(written.toSeq == Vectors.region(name).toSeq)
  }

  for (name <- Vectors.names("shared_invalid")) test(s"a wrong place is refused: $name") {
    val region = new GivenRegion(ByteBuffer.allocate(512))
    val error = intercept[FrameError](Frames.decode(Vectors.frames("shared_invalid", name), limits, Some(region)))
    assert(error.isInstanceOf[UnmappedError] == (name == "unknown_region"))
    assert(error.getMessage.contains("checksum") == (name == "checksum"))
  }

  test("shared memory that is not open is told apart from nonsense") {
    assertThrows[UnmappedError](Frames.decode(Vectors.frames("shared", "chunk"), limits))
  }
}
