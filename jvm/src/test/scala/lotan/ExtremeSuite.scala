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
          val found = Extreme(samples.set, greatest)(blocks, sources)
          assert(graph.read(blocks, found).map(_.toSeq).toSeq == best.map(_.toSeq).toSeq)
          val gradient = ExtremeGradient(samples.set)(blocks, sources, found, samples.column("y"), Width)
          assert(RandomGraph.close(graph.read(blocks, gradient), pulled))
        }
      }
    }
}
