package lotan.messenger

import java.io.File
import java.nio.file.Files
import java.nio.{ByteBuffer, ByteOrder}

import scala.collection.immutable.VectorMap
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

/** The golden vectors of the wire format, which the Python side is tested against too: see `tests/wire/vectors.py`. */
object Vectors {
  private val here = new File("../tests/wire")

  def names(kind: String): Seq[String] =
    new File(here, kind).list().toSeq.filter(_.endsWith(".bin")).map(_.stripSuffix(".bin")).sorted

  /** The frames in a file. */
  def frames(kind: String, name: String): Seq[Array[Byte]] = {
    val data = ByteBuffer.wrap(Files.readAllBytes(new File(here, s"$kind/$name.bin").toPath))
    data.order(ByteOrder.LITTLE_ENDIAN)
    Iterator
      .continually(data)
      .takeWhile(_.hasRemaining)
      .map { rest =>
        val frame = new Array[Byte](rest.getInt())
        rest.get(frame)
        frame
      }
      .toVector
  }

  /** The shared memory that a message refers to. */
  def region(name: String): Array[Byte] = Files.readAllBytes(new File(here, s"shared/$name.region").toPath)

  /** What a valid message means, and its checksum. */
  def meaning(name: String, kind: String = "valid"): (Message, Any) = {
    val json = new ObjectMapper().readTree(new File(here, s"$kind/$name.json"))
    val tensors = json.get("tensors").properties.asScala.toSeq.map(entry => entry.getKey -> tensor(entry.getValue))
    val header = plain(json.get("header")).asInstanceOf[VectorMap[String, Any]]
    (Message(Kind.of(json.get("kind").asText), header, tensors), plain(json.get("checksum")))
  }

  private def plain(node: JsonNode): Any =
    if (node.isObject) VectorMap.from(node.properties.asScala.toSeq.map(entry => entry.getKey -> plain(entry.getValue)))
    else if (node.isArray) node.elements.asScala.map(plain).toVector
    else if (node.isTextual) node.asText
    else if (node.isBoolean) node.asBoolean
    else if (node.isNull) null
    else if (node.isFloatingPointNumber) node.asDouble
    else if (node.canConvertToLong) node.asLong
    else BigInt(node.bigIntegerValue)

  private def tensor(node: JsonNode): Tensor = {
    val values = node.get("values").elements.asScala.toSeq
    val dtype = node.get("dtype").asText
    val bytes = ByteBuffer.allocate(values.length * Dtype.size(dtype)).order(ByteOrder.LITTLE_ENDIAN)
    values.foreach(put(bytes, dtype, _))
    val shape = node.get("shape").elements.asScala.map(_.asInt).toArray
    new Received(dtype, shape, bytes.flip())
  }

  private def put(bytes: ByteBuffer, dtype: String, value: JsonNode): ByteBuffer = dtype match {
    case "float32" => bytes.putFloat(value.asDouble.toFloat)
    case "float64" => bytes.putDouble(value.asDouble)
    case "int64" => bytes.putLong(value.asLong)
    case "int32" => bytes.putInt(value.asInt)
    case "bool" => bytes.put(if (value.asBoolean) 1.toByte else 0.toByte)
    case _ => bytes.put(value.asInt.toByte)
  }
}
