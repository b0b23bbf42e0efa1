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
          val step = ScaledPropagate(samples.set, Heads)
          val sums =
            if (reverse) step.reverse(blocks, samples.column("x"), scales, Width, shared)
            else step.forward(blocks, samples.sources("x", shared), scales)
          graph.read(blocks, sums)
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
        val (step, sources) = (ScaledPropagate(edges, Heads), samples.sources("x", shared))
        val forward = graph.read(blocks, step.forward(blocks, sources, scales))
        val reverse = graph.read(blocks, step.reverse(blocks, y, scales, Width, shared))
        val dots = samples.read(EdgeDot(edges, Heads)(blocks, sources, y))
        val expected = EdgeSamples.inner(forward, rows)
        assert(EdgeSamples.inner(graph.read(blocks, x), reverse) == expected)
        assert(EdgeSamples.inner(dots.map(e => EdgeSamples.numbers(e._1, Heads)), dots.map(_._2)) == expected)
      }
      scales.unpersist(blocking = true)
    }
  }
}
