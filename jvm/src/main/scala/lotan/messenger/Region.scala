package lotan.messenger

import java.io.{IOException, RandomAccessFile}
import java.nio.channels.{ClosedByInterruptException, FileChannel}
import java.nio.charset.StandardCharsets.US_ASCII
import java.nio.file.{DirectoryStream, Files, Path, Paths}
import java.nio.{ByteBuffer, MappedByteBuffer}
import java.security.SecureRandom

import scala.jdk.CollectionConverters._
import scala.util.{Try, Using}

/** A part of a region that was taken.
  *
  * @param region
  *   its name
  * @param memory
  *   the bytes from `offset` on
  */
final private[messenger] class Space(val region: String, val offset: Int, val memory: ByteBuffer) {
  def bytes: Int = memory.capacity
}

/** A Dealer's own shared memory, with an allocator: offsets and sizes are multiples of 64. The rules are those of Python's
  * `messenger.shared_memory`.
  *
  * It is a file in a file system in memory that has lost its name before anybody else hears of it; the kernel frees it with the
  * last process that has it open or mapped. A JVM unmaps it when it collects the garbage.
  *
  * Throws IOException if the directory is not there, or full; `take` does so too, when the region cannot grow.
  *
  * @param directory
  *   of a file system in memory
  * @param limit
  *   bytes to which it may grow
  */
final private[messenger] class Region(directory: Path, limit: Int) {
  import Region._

  if (limit < Page) throw new IOException(s"$limit bytes are less than a page of $Page")

  private val extents = new Extents(Alignment, Alignment)
  private val (file, descriptor) = openNameless(directory)
  private var memory: ByteBuffer = _

  /** The region's name on the wire. */
  val name: String =
    try {
      resize(math.min(FirstBytes, limit / Page * Page))
      val nonce = f"${random.nextLong()}%016x"
      memory.duplicate().put(nonce.getBytes(US_ASCII))
      s"$Prefix${ProcessHandle.current.pid}-$descriptor-$nonce"
    } catch {
      case error: Throwable =>
        close()
        throw error
    }

  /** The region's size now. */
  def bytes: Int = extents.end

  /** The number of free bytes in it. */
  def free: Int = extents.free

  /** Takes bytes, rounded up. Returns None if they do not fit and the region may not grow enough. */
  def take(size: Int): Option[Space] = {
    val rounded = padded(size.toLong)
    if (rounded > limit - Alignment) None
    else {
      val found = extents.take(rounded.toInt).orElse {
        grow(rounded)
        extents.take(rounded.toInt)
      }
      found.map(offset => new Space(name, offset, memory.slice(offset, rounded.toInt)))
    }
  }

  /** Frees space that nobody reads or writes any more. */
  def give(space: Space): Unit = extents.give(space.offset, space.bytes)

  /** Frees the region as soon as no process maps it any more. A second call does nothing. */
  def close(): Unit = file.close()

  private def grow(atLeast: Long): Unit = {
    val wanted = math.max(2, (atLeast + bytes - 1) / bytes + 1) * bytes
    val size = math.min(limit / Page * Page, wanted).toInt
    if (size > bytes) resize(size)
  }

  /** Reserves the space by writing zeros, so that a full file system is an error here and now. */
  private def resize(size: Int): Unit = {
    var at = file.length
    file.seek(at)
    while (at < size) {
      val part = math.min(Zeros.length.toLong, size - at).toInt
      file.write(Zeros, 0, part)
      at += part
    }
    memory = map(size)
    extents.extend(size)
  }

  private def map(size: Int): MappedByteBuffer =
    try file.getChannel.map(FileChannel.MapMode.READ_WRITE, 0, size.toLong)
    catch {
      case _: ClosedByInterruptException => throw new InterruptedException("interrupted while mapping shared memory")
    }
}

private[messenger] object Region {
  val Alignment = 64

  private val FirstBytes = 1 << 20
  private val Page = 4096
  private val Prefix = "lotan-"
  private val Zeros = new Array[Byte](1 << 16)
  private val random = new SecureRandom

  /** Returns a size, rounded up to a multiple of 64. */
  def padded(size: Long): Long = (size + Alignment - 1) / Alignment * Alignment

  /** Returns the bytes that these tensors take in a region, each from a multiple of 64 on. */
  def room(tensors: Iterable[Tensor]): Long = tensors.map(tensor => padded(tensor.bytes.toLong)).sum

  /** A file without a name, and the number of its descriptor. */
  private def openNameless(directory: Path): (RandomAccessFile, Int) = {
    removeStale(directory)
    val path = Files.createTempFile(directory, s"$Prefix${ProcessHandle.current.pid}-", "")
    try {
      val file = new RandomAccessFile(path.toFile, "rw")
      try (file, descriptorOf(path))
      catch {
        case error: Throwable =>
          file.close()
          throw error
      }
    } finally { val _ = Files.deleteIfExists(path) }
  }

  private def descriptorOf(path: Path): Int = {
    val real = path.toRealPath()
    list(Paths.get("/proc/self/fd"))
      .find(entry => Try(Files.readSymbolicLink(entry)).toOption.contains(real))
      .map(_.getFileName.toString.toInt)
      .getOrElse(throw new IOException(s"cannot find $path in /proc/self/fd"))
  }

  /** Removes files of processes that ended between making a file and removing its name. */
  private def removeStale(directory: Path): Unit =
    for (path <- list(directory); owner <- Owner.findFirstMatchIn(path.getFileName.toString).map(_.group(1)))
      if (!Files.exists(Paths.get("/proc", owner))) { val _ = Try(Files.deleteIfExists(path)) }

  private val Owner = s"^$Prefix([0-9]{1,10})-".r

  private def list(directory: Path): Seq[Path] =
    Using.resource(Files.newDirectoryStream(directory))((entries: DirectoryStream[Path]) => entries.asScala.toVector)
}
