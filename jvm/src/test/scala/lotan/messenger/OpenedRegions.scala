package lotan.messenger

import java.io.RandomAccessFile
import java.nio.ByteBuffer
import java.nio.channels.FileChannel

import scala.util.Using

/** Regions, opened as a worker does. */
object OpenedRegions extends Regions {
  override def view(region: String, offset: Long, size: Int): ByteBuffer = {
    val Array(_, pid, descriptor, nonce) = region.split("-"): @unchecked
    Using.resource(new RandomAccessFile(s"/proc/$pid/fd/$descriptor", "rw")) { file =>
      val head = new Array[Byte](16)
      file.readFully(head)
      require(new String(head) == nonce, s"a region of nonce ${new String(head)}, expected $nonce")
      file.getChannel.map(FileChannel.MapMode.READ_WRITE, 0, file.length).slice(offset.toInt, size)
    }
  }
}
