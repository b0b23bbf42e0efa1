package lotan

import org.scalatest.funsuite.AnyFunSuite

import EdgeSamples.Width

class ExtremeSuite extends AnyFunSuite with LocalSpark {

  for (greatest <- Seq(true, false))
    test(s"the ${if (greatest) "greatest" else "least"}, and its gradient in equal shares among ties") {
      EdgeSamples.each(spark) { samples =>
        import samples.{blocks, graph}
        val (x, y) = (graph.read(blocks, samples.column("x")), graph.read(blocks, samples.column("y")))
        val best = Array.fill(graph.count)(new Array[Float](Width))
        val pulled = Array.fill(graph.count)(new Array[Double](Width))
        for ((dst, in) <- samples.edges.flatten.groupBy(_._2); j <- 0 until Width) {
          val values = in.map(e => x(e._1)(j))
          best(dst)(j) = if (greatest) values.max else values.min
          val winners = in.filter(e => x(e._1)(j) == best(dst)(j))
          for (edge <- winners) pulled(edge._1)(j) += y(dst)(j).toDouble / winners.size
        }
        for (shared <- Seq(false, true)) {
          val sources = samples.sources("x", shared)
          val found = Extreme(samples.scope, greatest)(blocks, sources)
          assert(graph.read(blocks, found).map(_.toSeq).toSeq == best.map(_.toSeq).toSeq)
          val shares = ExtremeGradient(samples.scope).shares(blocks, sources, found, samples.destinations("y")).cache()
          val gradients =
            for (form <- Seq(false, true)) yield graph.read(blocks, ExtremeGradient(blocks, shares, Width, form))
          assert(RandomGraph.close(gradients.head, pulled))
          assert(gradients.head.map(_.toSeq).toSeq == gradients.last.map(_.toSeq).toSeq) // the same bits
          shares.unpersist(blocking = true)
        }
      }
    }
}
