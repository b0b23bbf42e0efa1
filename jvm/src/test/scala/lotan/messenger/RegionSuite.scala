package lotan.messenger

import java.io.IOException
import java.nio.file.{Files, Path, Paths}

import scala.jdk.CollectionConverters._
import scala.util.{Try, Using}

import org.scalatest.funsuite.AnyFunSuite

class RegionSuite extends AnyFunSuite {
  private val shm = Paths.get("/dev/shm")
  private val limit = 8 << 20

  private def withRegion[T](action: Region => T): T = {
    val region = new Region(shm, limit)
    try action(region)
    finally region.close()
  }

  test("another process finds by its name what was written, also after it has grown") {
    withRegion { region =>
      val spaces = Seq(10, 1 << 20, 3 << 20).map(region.take(_).get)
      for ((space, i) <- spaces.zipWithIndex) {
        assert(space.offset % 64 == 0 && space.offset >= 64 && space.bytes % 64 == 0)
        space.memory.duplicate().put(Array.fill(10)(i.toByte))
      }
      for ((space, i) <- spaces.zipWithIndex)
        assert(OpenedRegions.view(region.name, space.offset.toLong, 10).get(9) == i)
    }
  }

  test("space comes back, and is bounded") {
    withRegion { region =>
      val spaces = Seq.fill(7)(region.take(1 << 20).get)
      assert(region.take(1 << 20).isEmpty && region.take(Int.MaxValue).isEmpty && region.bytes == limit)
      region.give(spaces(3))
      assert(region.take(1 << 20).map(_.offset).contains(spaces(3).offset))
    }
  }

  private def names(directory: Path): Set[String] =
    Using.resource(Files.list(directory))(_.iterator.asScala.map(_.getFileName.toString).toSet)

  test("it has no name, and nothing is left when it is closed") {
    val directory = Files.createTempDirectory(shm, "lotan-suite")
    try {
      val region = new Region(directory, limit)
      assert(names(directory).isEmpty)
      region.close()
      region.close()
      assert(Try(OpenedRegions.view(region.name, 64, 1)).isFailure)
    } finally Files.delete(directory)
  }

  test("what a process left that has ended is removed, and nothing else") {
    val directory = Files.createTempDirectory(shm, "lotan-suite")
    try {
      val alive = s"lotan-${ProcessHandle.current.pid}-x"
      for (name <- Seq(alive, "lotan-4194399-abc", "other-4194399-abc")) Files.createFile(directory.resolve(name))
      new Region(directory, limit).close()
      assert(names(directory) == Set(alive, "other-4194399-abc"))
    } finally {
      names(directory).foreach(name => Files.delete(directory.resolve(name)))
      Files.delete(directory)
    }
  }

  test("only its owner may open it") {
    withRegion { region =>
      val Array(_, pid, descriptor, _) = region.name.split("-"): @unchecked
      val mode = Files.getPosixFilePermissions(Paths.get(s"/proc/$pid/fd/$descriptor"))
      assert(mode.asScala.map(_.toString) == Set("OWNER_READ", "OWNER_WRITE"))
    }
  }

  test("where there is no such directory") {
    assertThrows[IOException](new Region(Paths.get("/dev/shm/nowhere"), limit))
  }
}
