package lotan

import java.io.File
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.FileChannel
import java.nio.file.{Files, StandardOpenOption}
import java.util.concurrent.{ConcurrentHashMap, ConcurrentLinkedQueue}

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.rdd.RDD

/** The rows of a column that are in one partition, in a file: a reader brings those that it needs into memory, and no others.
  *
  * Numbers are in native order, for the file never leaves this machine. It lies in a local folder of Spark.
  */
final class ColumnFile private[lotan] (val path: String, val width: Int, val count: Int) extends Serializable {
  private def rowBytes = 4L * width

  /** Returns the rows at the first `number` of some ascending places, one after the other. */
  def rows(places: Array[Int], number: Int): Array[Float] = {
    val found = Rows.zeros(number, width).values
    reading { read =>
      var first = 0
      while (first < number) {
        val until = end(places, first, number)
        val buffer = read(places(first), places(until - 1) - places(first) + 1)
        var i = first
        while (i < until) {
          val run = consecutive(places, i, until)
          buffer.get((places(i) - places(first)) * width, found, i * width, (run - i) * width)
          i = run
        }
        first = until
      }
    }
    found
  }

  /** Returns the first rows. */
  def rows(number: Int): Array[Float] = {
    val found = Rows.zeros(number, width).values
    val most = math.max(1, (ColumnFile.BufferBytes / rowBytes).toInt)
    reading { read =>
      for (first <- 0 until number by most) {
        val some = math.min(most, number - first)
        read(first, some).get(0, found, first * width, some * width)
      }
    }
    found
  }

  /** The end of those places that one read takes: rows between them that nobody needs cost less than another read. */
  private def end(places: Array[Int], first: Int, number: Int): Int = {
    var until = first + 1
    while (
      until < number &&
      (places(until) - places(until - 1) - 1) * rowBytes <= ColumnFile.GapBytes &&
      (places(until) - places(first) + 1) * rowBytes <= ColumnFile.BufferBytes
    ) until += 1
    until
  }

  private def consecutive(places: Array[Int], first: Int, number: Int): Int = {
    var until = first + 1
    while (until < number && places(until) == places(until - 1) + 1) until += 1
    until
  }

  private def reading(use: ((Int, Int) => java.nio.FloatBuffer) => Unit): Unit = {
    val channel = FileChannel.open(new File(path).toPath, StandardOpenOption.READ)
    try
      use { (first, number) =>
        val buffer = ColumnFile.buffer(number * rowBytes)
        var place = first * rowBytes
        while (buffer.hasRemaining) {
          val some = channel.read(buffer, place)
          require(some > 0, s"the file $path of a column ends at byte $place; $count rows of width $width were written")
          place += some
        }
        buffer.flip().asFloatBuffer
      }
    finally channel.close()
  }
}

private object ColumnFile {
  private val BufferBytes = 1L << 18
  private val GapBytes = 4096L // a read of so many bytes takes about as long as the call itself

  private val buffers = new ThreadLocal[ByteBuffer]

  /** The buffer of this thread, for so many bytes: outside the heap, so that a read does not copy twice. */
  private def buffer(bytes: Long): ByteBuffer = {
    require(bytes <= Int.MaxValue, s"a row takes $bytes bytes; one read takes ${Int.MaxValue}")
    if (buffers.get == null || buffers.get.capacity < bytes)
      buffers.set(ByteBuffer.allocateDirect(math.max(BufferBytes, bytes).toInt).order(ByteOrder.nativeOrder))
    buffers.get.clear().limit(bytes.toInt)
  }

  private val written = new ConcurrentHashMap[Int, ConcurrentLinkedQueue[File]] // by the number of the RDD of files

  /** The files of a column, made when they are asked for. The caller persists the result, and deletes the files. */
  def of(column: RDD[Rows]): RDD[ColumnFile] = new ColumnFiles(column)

  /** Deletes the files that belong to an RDD. It does nothing for any other RDD. */
  def delete(files: RDD[_]): Unit =
    Option(written.remove(files.id)).foreach(_.forEach(file => { val _ = file.delete() }))

  private[lotan] def write(rows: Rows, owner: Int): ColumnFile = {
    val (_, file) = SparkEnv.get.blockManager.diskBlockManager.createTempLocalBlock()
    Option(TaskContext.get()).foreach(_.addTaskFailureListener((_, _) => { val _ = file.delete() }))
    written.computeIfAbsent(owner, _ => new ConcurrentLinkedQueue).add(file)
    val channel = FileChannel.open(file.toPath, StandardOpenOption.CREATE, StandardOpenOption.WRITE)
    try {
      var done = 0
      while (done < rows.values.length) {
        val some = math.min(rows.values.length - done, (BufferBytes / 4).toInt)
        val bytes = buffer(4L * some)
        bytes.asFloatBuffer.put(rows.values, done, some)
        while (bytes.hasRemaining) channel.write(bytes)
        done += some
      }
    } catch {
      case failure: Throwable =>
        val _ = Files.deleteIfExists(file.toPath)
        throw failure
    } finally channel.close()
    new ColumnFile(file.getPath, rows.width, rows.count)
  }
}

/** Puts each partition of a column into a file. */
final private class ColumnFiles(column: RDD[Rows]) extends RDD[ColumnFile](column) {
  override protected def getPartitions: Array[org.apache.spark.Partition] = firstParent[Rows].partitions

  override def compute(split: org.apache.spark.Partition, context: TaskContext): Iterator[ColumnFile] =
    Iterator.single(ColumnFile.write(OneElement.read(firstParent[Rows], split, context), id))
}
