package lotan

import lotan.messenger.Incubator

/** Adds rows to a row, strictly one after the other, several in one pass over the target.
  *
  * The rows lie all over memory: reading eight at once keeps that many cache misses in flight. Measured on 2.5 million edges of
  * width 256: 1.26 s for one row a pass, 0.93 s for two, 0.58 s for four, 0.54 s for eight (one core). The JIT compiler makes
  * vector instructions of loops of this very form: indices `constant + j`, no branch inside.
  */
private object AddRows {
  val AtOnce = 8

  /** Rows that `apply` takes. */
  val Most: Int = if (Incubator.hasVectors) 64 else AtOnce

  private type Floats = Array[Float]

  /** out[at + j] += rows(0)[offsets(0) + j], then rows(1)[...], up to `count` rows, at most `Most`. The same bits either way. */
  def apply(out: Floats, at: Int, rows: Array[Floats], offsets: Array[Int], count: Int, width: Int): Unit =
    if (Incubator.hasVectors) VectorSums.add(out, at, rows, offsets, count, width)
    else plain(out, at, rows, offsets, count, width)

  /** As `apply` without vector operations, for at most AtOnce rows. */
  private[lotan] def plain(
      out: Floats,
      at: Int,
      rows: Array[Floats],
      offsets: Array[Int],
      count: Int,
      width: Int
  ): Unit =
    if (count == AtOnce) eight(out, at, rows, offsets, width)
    else {
      var i = 0
      if (count >= 4) {
        four(out, at, rows(0), offsets(0), rows(1), offsets(1), rows(2), offsets(2), rows(3), offsets(3), width)
        i = 4
      }
      if (count - i >= 2) {
        two(out, at, rows(i), offsets(i), rows(i + 1), offsets(i + 1), width)
        i += 2
      }
      if (i < count) one(out, at, rows(i), offsets(i), width)
    }

  /** As `apply`, each row multiplied with its scale. */
  def scaled(
      out: Floats,
      at: Int,
      rows: Array[Floats],
      offsets: Array[Int],
      scales: Floats,
      count: Int,
      width: Int
  ): Unit = {
    var i = 0
    while (i + 4 <= count) {
      fourScaled(out, at, rows, offsets, scales, i, width)
      i += 4
    }
    while (i < count) {
      oneScaled(out, at, rows(i), offsets(i), scales(i), width)
      i += 1
    }
  }

  def one(out: Floats, at: Int, a: Floats, ao: Int, width: Int): Unit = {
    var j = 0
    while (j < width) {
      out(at + j) += a(ao + j)
      j += 1
    }
  }

  def oneScaled(out: Floats, at: Int, a: Floats, ao: Int, scale: Float, width: Int): Unit = {
    var j = 0
    while (j < width) {
      out(at + j) += scale * a(ao + j)
      j += 1
    }
  }

  private def two(out: Floats, at: Int, a: Floats, ao: Int, b: Floats, bo: Int, width: Int): Unit = {
    var j = 0
    while (j < width) {
      out(at + j) = out(at + j) + a(ao + j) + b(bo + j)
      j += 1
    }
  }

  private def four(
      out: Floats,
      at: Int,
      a: Floats,
      ao: Int,
      b: Floats,
      bo: Int,
      c: Floats,
      co: Int,
      d: Floats,
      d0: Int,
      width: Int
  ): Unit = {
    var j = 0
    while (j < width) {
      out(at + j) = out(at + j) + a(ao + j) + b(bo + j) + c(co + j) + d(d0 + j)
      j += 1
    }
  }

  private def eight(out: Floats, at: Int, rows: Array[Floats], offsets: Array[Int], width: Int): Unit = {
    val a = rows(0)
    val b = rows(1)
    val c = rows(2)
    val d = rows(3)
    val e = rows(4)
    val f = rows(5)
    val g = rows(6)
    val h = rows(7)
    val ao = offsets(0)
    val bo = offsets(1)
    val co = offsets(2)
    val d0 = offsets(3)
    val eo = offsets(4)
    val fo = offsets(5)
    val go = offsets(6)
    val ho = offsets(7)
    var j = 0
    while (j < width) {
      val half = out(at + j) + a(ao + j) + b(bo + j) + c(co + j) + d(d0 + j)
      out(at + j) = half + e(eo + j) + f(fo + j) + g(go + j) + h(ho + j)
      j += 1
    }
  }

  private def fourScaled(
      out: Floats,
      at: Int,
      rows: Array[Floats],
      offsets: Array[Int],
      scales: Floats,
      i: Int,
      width: Int
  ): Unit = {
    val a = rows(i)
    val b = rows(i + 1)
    val c = rows(i + 2)
    val d = rows(i + 3)
    val ao = offsets(i)
    val bo = offsets(i + 1)
    val co = offsets(i + 2)
    val d0 = offsets(i + 3)
    val ra = scales(i)
    val rb = scales(i + 1)
    val rc = scales(i + 2)
    val rd = scales(i + 3)
    var j = 0
    while (j < width) {
      out(at + j) = out(at + j) + ra * a(ao + j) + rb * b(bo + j) + rc * c(co + j) + rd * d(d0 + j)
      j += 1
    }
  }
}
