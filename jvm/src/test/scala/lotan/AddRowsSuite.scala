package lotan

import scala.util.Random

import org.scalatest.funsuite.AnyFunSuite

class AddRowsSuite extends AnyFunSuite {
  for (width <- Seq(1, 3, 8, 15, 16, 17, 31, 40, 64, 100, 128, 256, 257, 300))
    test(s"vector operations give the bits of adding number by number: width $width") {
      val random = new Random(width)
      for (count <- Seq(0, 1, 2, 3, 7, 8, 9, AddRows.Most)) {
        val rows = Array.fill(count)(Array.fill(width + 5)(random.nextFloat() - 0.5f))
        val offsets = Array.fill(count)(random.nextInt(5))
        val start = Array.fill(width + 7)(random.nextFloat())
        val expected = start.clone()
        for ((row, offset) <- rows.zip(offsets); j <- 0 until width) expected(3 + j) += row(offset + j)
        val found = start.clone()
        AddRows(found, 3, rows, offsets, count, width)
        assert(bits(found) == bits(expected), s"$count rows")
        if (count <= AddRows.AtOnce) {
          val plain = start.clone()
          AddRows.plain(plain, 3, rows, offsets, count, width)
          assert(bits(plain) == bits(expected), s"$count rows")
        }
      }
    }

  private def bits(numbers: Array[Float]): Seq[Int] = numbers.toSeq.map(java.lang.Float.floatToRawIntBits)
}
