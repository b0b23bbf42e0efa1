package lotan.messenger

import scala.collection.mutable
import scala.util.Random

import org.scalatest.funsuite.AnyFunSuite

class ExtentsSuite extends AnyFunSuite {
  test("what is taken never overlaps, and all comes back as one") {
    val random = new Random(5)
    val extents = new Extents(64, 64)
    extents.extend(1000)
    val taken = mutable.Map.empty[Int, Int]
    for (_ <- 1 to 3000) {
      val size = 1 + random.nextInt(200)
      if (random.nextBoolean()) for (offset <- extents.take(size)) {
        assert(offset >= 64 && offset + size <= 1000)
        assert(taken.forall { case (other, length) => offset + size <= other || other + length <= offset })
        taken(offset) = size
      }
      else
        for ((offset, length) <- taken.headOption) {
          extents.give(offset, length)
          taken -= offset
        }
      assert(extents.free == 936 - taken.values.sum)
    }
    for ((offset, length) <- taken) extents.give(offset, length)
    assert(extents.take(936).contains(64) && extents.take(1).isEmpty)
  }

  test("the first that fits is taken, and there may be more") {
    val extents = new Extents(0, 100)
    val Seq(a, b, c) = Seq(20, 30, 50).map(extents.take(_).get): @unchecked
    extents.give(c, 50)
    extents.give(a, 20)
    assert(extents.take(10).contains(a) && extents.take(30).contains(c))
    extents.extend(200)
    assert(extents.end == 200 && extents.take(120).contains(80) && b == 20)
  }
}
