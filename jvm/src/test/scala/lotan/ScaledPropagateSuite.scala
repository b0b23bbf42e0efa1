package lotan

import org.scalatest.funsuite.AnyFunSuite

import EdgeSamples.{Channels, Heads, Width}

class ScaledPropagateSuite extends AnyFunSuite with LocalSpark {

  test("sums are those of the definition, in both directions and forms") {
    EdgeSamples.each(spark) { samples =>
      import samples.{blocks, graph}
      val scales = samples.edgeColumn(Heads)(EdgeSamples.numbers(_, Heads)).cache()
      val x = graph.read(blocks, samples.column("x"))
      for (reverse <- Seq(false, true)) {
        val expected = Array.fill(graph.count)(new Array[Double](Width))
        for ((edge @ (src, dst, _)) <- samples.edges.flatten; j <- 0 until Width) {
          val (from, to) = if (reverse) (dst, src) else (src, dst)
          expected(to)(j) += EdgeSamples.numbers(edge, Heads)(j / Channels).toDouble * x(from)(j)
        }
        val found = for (shared <- Seq(false, true)) yield {
          val step = ScaledPropagate(samples.set, Heads, reverse)
          graph.read(blocks, step(blocks, samples.column("x"), scales, Width, shared))
        }
        assert(RandomGraph.close(found.head, expected))
        assert(found.head.map(_.toSeq).toSeq == found.last.map(_.toSeq).toSeq) // the same bits
      }
      scales.unpersist(blocking = true)
    }
  }

  test("reverse is the adjoint in the rows, and EdgeDot in the scales, exactly on whole numbers") {
    EdgeSamples.each(spark) { samples =>
      import samples.{blocks, graph}
      val scales = samples.edgeColumn(Heads)(EdgeSamples.numbers(_, Heads)).cache()
      val (x, y) = (samples.column("x"), samples.column("y"))
      val (edges, rows) = (samples.set, graph.read(blocks, y))
      for (shared <- Seq(false, true)) {
        val forward =
          graph.read(blocks, ScaledPropagate(edges, Heads, reverse = false)(blocks, x, scales, Width, shared))
        val reverse =
          graph.read(blocks, ScaledPropagate(edges, Heads, reverse = true)(blocks, y, scales, Width, shared))
        val dots = samples.read(EdgeDot(edges, Heads)(blocks, x, y, shared))
        val expected = EdgeSamples.inner(forward, rows)
        assert(EdgeSamples.inner(graph.read(blocks, x), reverse) == expected)
        assert(EdgeSamples.inner(dots.map(e => EdgeSamples.numbers(e._1, Heads)), dots.map(_._2)) == expected)
      }
      scales.unpersist(blocking = true)
    }
  }
}
