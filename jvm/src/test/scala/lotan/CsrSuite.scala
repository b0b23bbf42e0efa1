package lotan

import scala.util.Random

import org.scalatest.funsuite.AnyFunSuite

class CsrSuite extends AnyFunSuite {
  private def entries(csr: Csr): Seq[(Int, Int, Float)] =
    for (row <- 0 until csr.rows; edge <- csr.indptr(row) until csr.indptr(row + 1))
      yield (row, csr.columns(edge), csr.weights.fold(1f)(_(edge)))

  private val random = new Random(3)
  private val sample = Seq.fill(200)((random.nextInt(10), random.nextInt(12), random.nextFloat() - 0.5f))

  private def csr(of: Seq[(Int, Int, Float)]): Csr =
    Csr(10, of.map(_._1).toArray, of.map(_._2).toArray, Some(of.map(_._3).toArray))

  test("entries are sorted by row, column and weight, however they come") {
    assert(entries(csr(sample)) == sample.sorted)
    assert(entries(csr(sample.reverse)) == sample.sorted)
  }

  test("a transpose has its entries swapped, and in order") {
    assert(entries(csr(sample).transpose(12)) == sample.map { case (r, c, w) => (c, r, w) }.sorted)
  }

  test("without the diagonal") {
    assert(entries(csr(sample).withoutDiagonal) == sample.filter(e => e._1 != e._2).sorted)
    val plain = csr(sample.filter(e => e._1 != e._2))
    assert(plain.withoutDiagonal eq plain)
  }

  test("with a diagonal") {
    val plain = csr(sample).withoutDiagonal
    val diagonal = Array.tabulate(10)(_ + 0.5f)
    val expected = entries(plain) ++ diagonal.indices.map(i => (i, i, diagonal(i)))
    assert(entries(plain.withDiagonal(diagonal)) == expected.sorted)
  }

  test("the entries of each type") {
    val random = new scala.util.Random(5)
    val (rows, edges) = (9, 60)
    val (rowOf, columns) = (Array.fill(edges)(random.nextInt(rows)), Array.fill(edges)(random.nextInt(rows)))
    val data = new EdgeData(2, Array.tabulate(2 * edges)(i => if (i % 2 == 0) random.nextInt(4).toFloat else i.toFloat))
    val csr = Csr(rows, rowOf, columns, Some(Array.tabulate(edges)(_.toFloat)), Some(data))
    val types = csr.data.get.columns(0, 1).values
    for (number <- 0 to 4) { // there is none of the last type
      val found = csr.ofType(number)
      val kept = csr.columns.indices.filter(types(_) == number.toFloat)
      assert(found.rows == rows)
      assert(found.columns.toSeq == kept.map(csr.columns(_)))
      assert(found.weights.get.toSeq == kept.map(csr.weights.get(_)))
      assert(found.data.get.values.toSeq == csr.data.get.pick(kept.toArray).values.toSeq)
      assert(found.rowOfEach.toSeq == kept.map(csr.rowOfEach(_)))
    }
    assertThrows[IllegalArgumentException](new Csr(Array(0), Array.emptyIntArray, None).ofType(0))
  }

  test("no weights, no rows") {
    val empty = Csr(0, Array.empty[Int], Array.empty[Int], None)
    assert(empty.rows == 0 && empty.edges == 0 && empty.transpose(3).rows == 3)
  }
}
