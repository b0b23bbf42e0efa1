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
          val step = ScaledPropagate(samples.scope, Heads)
          val sums =
            if (reverse) step.reverse(blocks, samples.destinations("x"), scales, Width, shared)
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
      val (x, y) = (graph.read(blocks, samples.column("x")), graph.read(blocks, samples.column("y")))
      for (shared <- Seq(false, true)) {
        val (step, sources) = (ScaledPropagate(samples.scope, Heads), samples.sources("x", shared))
        val forward = graph.read(blocks, step.forward(blocks, sources, scales))
        val reverse = graph.read(blocks, step.reverse(blocks, samples.destinations("y"), scales, Width, shared))
        val dots = samples.read(EdgeDot(samples.scope, Heads)(blocks, sources, samples.destinations("y")))
        val expected = EdgeSamples.inner(forward, y)
        assert(EdgeSamples.inner(x, reverse) == expected)
        assert(EdgeSamples.inner(dots.map(e => EdgeSamples.numbers(e._1, Heads)), dots.map(_._2)) == expected)
      }
      scales.unpersist(blocking = true)
    }
  }
}
