package lotan

import org.scalatest.funsuite.AnyFunSuite

import EdgeSamples.{Channels, Heads, Width}

class EdgeDotSuite extends AnyFunSuite with LocalSpark {

  test("a dot product for each edge and head") {
    EdgeSamples.each(spark) { samples =>
      val x = samples.graph.read(samples.blocks, samples.column("x"))
      val y = samples.graph.read(samples.blocks, samples.column("y"))
      for (shared <- Seq(false, true); heads <- Seq(1, Heads, Width)) {
        val found =
          EdgeDot(samples.scope, heads)(samples.blocks, samples.sources("x", shared), samples.destinations("y"))
        for (((src, dst, _), dots) <- samples.read(found)) {
          val products = x(src).zip(y(dst)).map { case (a, b) => a * b }
          assert(dots.toSeq == products.grouped(Width / heads).map(_.sum).toSeq)
        }
      }
      assert(Channels * Heads == Width)
    }
  }

  for (width <- Seq(1, 7, 8, 9, 64, 100))
    test(s"a dot product of $width numbers") {
      val a = Array.tabulate(width + 3)(_.toFloat)
      val b = Array.tabulate(width + 5)(i => (i % 7).toFloat)
      assert(EdgeDot.dot(a, 3, b, 5, width) == (0 until width).map(j => a(3 + j) * b(5 + j)).sum)
    }

  test("rows that are not heads of one size are refused") {
    EdgeSamples.each(spark) { samples =>
      val dots =
        EdgeDot(samples.scope, 5)(samples.blocks, samples.sources("x", shared = true), samples.destinations("y"))
      assert(intercept[Exception](dots.count()).getMessage.contains("for 5 heads"))
    }
  }
}
