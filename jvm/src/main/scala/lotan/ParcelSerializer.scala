package lotan

import java.io.{EOFException, InputStream, OutputStream}
import java.nio.ByteBuffer

import scala.reflect.ClassTag

import org.apache.spark.serializer.{DeserializationStream, SerializationStream, Serializer, SerializerInstance}
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** Writes the parcels of a shuffle, keyed by target partition, as plain memory: block copies, no object streams.
  *
  * Made for shuffles between equal machines: numbers are in native order.
  */
final class ParcelSerializer extends Serializer with Serializable {
  override def newInstance(): SerializerInstance = new ParcelSerializerInstance
}

private final class ParcelSerializerInstance extends SerializerInstance {
  override def serializeStream(out: OutputStream): SerializationStream = new ParcelOutput(out)
  override def deserializeStream(in: InputStream): DeserializationStream = new ParcelInput(in)

  override def serialize[T: ClassTag](value: T): ByteBuffer = refuse()
  override def deserialize[T: ClassTag](bytes: ByteBuffer): T = refuse()
  override def deserialize[T: ClassTag](bytes: ByteBuffer, loader: ClassLoader): T = refuse()

  private def refuse() = throw new UnsupportedOperationException("parcels travel in shuffles only")
}

private object Chunk {
  val Bytes: Int = 1 << 14 // a task of a shuffle may have one for each partition
  val Start: Long = Platform.BYTE_ARRAY_OFFSET
  val Longs = 0
  val Texts = 1
}

private final class ParcelOutput(out: OutputStream) extends SerializationStream {
  private val chunk = new Array[Byte](Chunk.Bytes)
  private var used = 0

  override def writeObject[T: ClassTag](value: T): SerializationStream = {
    value match {
      case target: Int => writeInt(target)
      case parcel: Parcel => writeParcel(parcel)
      case other => throw new IllegalArgumentException(s"not a parcel: $other")
    }
    this
  }

  override def flush(): Unit = {
    drain()
    out.flush()
  }

  override def close(): Unit = {
    drain()
    out.close()
  }

  private def writeParcel(parcel: Parcel): Unit = {
    writeInt(parcel.sender)
    writeInt(parcel.ids.size)
    parcel.ids.foreach {
      case ids: LongIds =>
        writeInt(Chunk.Longs); writeInt(ids.size); write(ids.values, Platform.LONG_ARRAY_OFFSET, ids.size * 8L)
      case ids: TextIds => writeInt(Chunk.Texts); writeInt(ids.size); ids.values.foreach(writeText)
    }
    writeInt(parcel.width)
    writeInt(parcel.rows.fold(parcel.values.length)(_.length * parcel.width))
    parcel.rows match {
      case None => write(parcel.values, Platform.FLOAT_ARRAY_OFFSET, parcel.values.length * 4L)
      case Some(rows) => writeRows(parcel, rows)
    }
  }

  private def writeRows(parcel: Parcel, rows: Array[Int]): Unit = {
    val bytes = parcel.width * 4L
    var i = 0
    while (i < rows.length) {
      write(parcel.values, Platform.FLOAT_ARRAY_OFFSET + rows(i) * bytes, bytes)
      i += 1
    }
  }

  private def writeText(text: UTF8String): Unit = {
    val bytes = text.getBytes
    writeInt(bytes.length)
    write(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length.toLong)
  }

  private def writeInt(value: Int): Unit = {
    if (used + 4 > chunk.length) drain()
    Platform.putInt(chunk, Chunk.Start + used, value)
    used += 4
  }

  private def write(source: AnyRef, offset: Long, bytes: Long): Unit = {
    var done = 0L
    while (done < bytes) {
      if (used == chunk.length) drain()
      val size = math.min(bytes - done, (chunk.length - used).toLong)
      Platform.copyMemory(source, offset + done, chunk, Chunk.Start + used, size)
      used += size.toInt
      done += size
    }
  }

  private def drain(): Unit = {
    out.write(chunk, 0, used)
    used = 0
  }
}

private final class ParcelInput(in: InputStream) extends DeserializationStream {
  private val chunk = new Array[Byte](Chunk.Bytes)

  // Spark reads keys and values in turn, and takes an EOFException before a key for the end of the stream.
  override def readKey[T: ClassTag](): T = readInt().asInstanceOf[T]
  override def readValue[T: ClassTag](): T = readParcel().asInstanceOf[T]
  override def readObject[T: ClassTag](): T = throw new UnsupportedOperationException("parcels are read as pairs")
  override def close(): Unit = in.close()

  private def readParcel(): Parcel = {
    val sender = readInt()
    val ids = Seq.fill(readInt())(readIds())
    val width = readInt()
    val values = new Array[Float](readInt())
    read(values, Platform.FLOAT_ARRAY_OFFSET, values.length * 4L)
    new Parcel(sender, ids, width, values)
  }

  private def readIds(): Ids = {
    val kind = readInt()
    val size = readInt()
    if (kind == Chunk.Texts) new TextIds(Array.fill(size)(readText()))
    else {
      val values = new Array[Long](size)
      read(values, Platform.LONG_ARRAY_OFFSET, size * 8L)
      new LongIds(values)
    }
  }

  private def readText(): UTF8String = {
    val bytes = new Array[Byte](readInt())
    read(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length.toLong)
    UTF8String.fromBytes(bytes)
  }

  private def readInt(): Int = {
    fill(4)
    Platform.getInt(chunk, Chunk.Start)
  }

  private def read(target: AnyRef, offset: Long, bytes: Long): Unit = {
    var done = 0L
    while (done < bytes) {
      val size = math.min(bytes - done, chunk.length.toLong).toInt
      fill(size)
      Platform.copyMemory(chunk, Chunk.Start, target, offset + done, size.toLong)
      done += size
    }
  }

  private def fill(size: Int): Unit =
    if (in.readNBytes(chunk, 0, size) < size) throw new EOFException("the shuffle stream ended inside a parcel")
}
