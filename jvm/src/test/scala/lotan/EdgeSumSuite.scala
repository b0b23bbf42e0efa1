package lotan

import org.scalatest.funsuite.AnyFunSuite

import EdgeSamples.Heads

class EdgeSumSuite extends AnyFunSuite with LocalSpark {

  for (bySource <- Seq(false, true))
    test(s"sums over ${if (bySource) "out" else "in"}-edges are those of the definition") {
      EdgeSamples.each(spark) { samples =>
        val column = samples.edgeColumn(Heads)(EdgeSamples.numbers(_, Heads)).cache()
        val expected = Array.fill(samples.graph.count)(new Array[Float](Heads))
        for ((edge @ (src, dst, _)) <- samples.edges.flatten; h <- 0 until Heads)
          expected(if (bySource) src else dst)(h) += EdgeSamples.numbers(edge, Heads)(h)
        for (shared <- Seq(false, true)) {
          val found = EdgeSum(samples.scope, bySource)(samples.blocks, column, Heads, shared)
          assert(samples.graph.read(samples.blocks, found).map(_.toSeq).toSeq == expected.map(_.toSeq).toSeq)
        }
        column.unpersist(blocking = true)
      }
    }

  test("it is the adjoint of reading rows at that end: <sum e, y> = <e, y at the end>, exactly on whole numbers") {
    EdgeSamples.each(spark) { samples =>
      import samples.{blocks, graph}
      val column = samples.edgeColumn(Heads)(EdgeSamples.numbers(_, Heads)).cache()
      val y = graph.read(blocks, samples.column("a"))
      for (bySource <- Seq(false, true); shared <- Seq(false, true)) {
        val sums = EdgeSum(samples.scope, bySource)(blocks, column, Heads, shared)
        val atEnds =
          if (bySource)
            EdgeExpression(samples.scope, EdgeFunction.Source(0), Heads)(
              blocks,
              Seq(samples.sources("a", shared)),
              Nil,
              Nil
            )
          else
            EdgeExpression(samples.scope, EdgeFunction.Destination(0), Heads)(
              blocks,
              Nil,
              Seq(samples.destinations("a")),
              Nil
            )
        val read = samples.read(atEnds)
        val expected = EdgeSamples.inner(read.map(e => EdgeSamples.numbers(e._1, Heads)), read.map(_._2))
        assert(EdgeSamples.inner(graph.read(blocks, sums), y) == expected)
      }
      column.unpersist(blocking = true)
    }
  }

  test("a column of other edges is refused") {
    EdgeSamples.each(spark) { samples =>
      val ones = samples.edgeColumn(1)(_ => Array(1f))
      val (none, more) = (ones.map(_ => Rows.zeros(0, 1)), ones.map(rows => Rows.zeros(rows.count + 1, 1)))
      for (wrong <- Seq(none, more); bySource <- Seq(false, true)) {
        val sums = EdgeSum(samples.scope, bySource)(samples.blocks, wrong, 1, shared = true)
        assert(intercept[Exception](sums.count()).getMessage.contains("an edge column has"))
      }
    }
  }
}
