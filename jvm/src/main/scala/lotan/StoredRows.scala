package lotan

import java.io.{Externalizable, ObjectInput, ObjectOutput}
import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}

/** Rows on their way to the disk and back, many numbers at a time: Java's own way goes one by one.
  *
  * Public, with a constructor of no arguments, because Java's serialization asks for it.
  */
final class StoredRows(private var rows: Rows) extends Externalizable {
  def this() = this(null)

  override def writeExternal(out: ObjectOutput): Unit = {
    out.writeInt(rows.width)
    out.writeInt(rows.values.length)
    val left = FloatBuffer.wrap(rows.values)
    val buffer = StoredRows.buffer()
    while (left.hasRemaining) {
      val count = math.min(left.remaining, StoredRows.Numbers)
      buffer.asFloatBuffer.put(left.slice.limit(count))
      left.position(left.position() + count)
      out.write(buffer.array, 0, 4 * count)
    }
  }

  override def readExternal(in: ObjectInput): Unit = {
    val width = in.readInt()
    val values = new Array[Float](in.readInt())
    val buffer = StoredRows.buffer()
    var first = 0
    while (first < values.length) {
      val count = math.min(values.length - first, StoredRows.Numbers)
      in.readFully(buffer.array, 0, 4 * count)
      buffer.asFloatBuffer.get(values, first, count)
      first += count
    }
    rows = new Rows(width, values)
  }

  private def readResolve: AnyRef = rows
}

private object StoredRows {
  val Numbers: Int = 1 << 14

  def buffer(): ByteBuffer = ByteBuffer.allocate(4 * Numbers).order(ByteOrder.nativeOrder)
}
