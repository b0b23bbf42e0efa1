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
          val found = EdgeSum(samples.set, bySource)(samples.blocks, column, Heads, shared)
          assert(samples.graph.read(samples.blocks, found).map(_.toSeq).toSeq == expected.map(_.toSeq).toSeq)
        }
        column.unpersist(blocking = true)
      }
    }

  test("it is the adjoint of reading rows at that end: <sum e, y> = <e, y at the end>, exactly on whole numbers") {
    EdgeSamples.each(spark) { samples =>
      import samples.{blocks, graph}
      val column = samples.edgeColumn(Heads)(EdgeSamples.numbers(_, Heads)).cache()
      val y = samples.column("a")
      for (bySource <- Seq(false, true); shared <- Seq(false, true)) {
        val sums = EdgeSum(samples.set, bySource)(blocks, column, Heads, shared)
        val atEnds =
          if (bySource)
            EdgeExpression(samples.set, EdgeFunction.Source(0), Heads)(
              blocks,
              Seq(samples.sources("a", shared)),
              Nil,
              Nil
            )
          else EdgeExpression(samples.set, EdgeFunction.Destination(0), Heads)(blocks, Nil, Seq(y), Nil)
        val read = samples.read(atEnds)
        val expected = EdgeSamples.inner(read.map(e => EdgeSamples.numbers(e._1, Heads)), read.map(_._2))
        assert(EdgeSamples.inner(graph.read(blocks, sums), graph.read(blocks, y)) == expected)
      }
      column.unpersist(blocking = true)
    }
  }

  test("a column of other edges is refused") {
    EdgeSamples.each(spark) { samples =>
      val short = samples.edgeColumn(1)(_ => Array(1f)).map(rows => new Rows(1, rows.values.drop(1)))
      val sums = EdgeSum(samples.set, bySource = false)(samples.blocks, short, 1, shared = true)
      assert(intercept[Exception](sums.count()).getMessage.contains("an edge column has"))
    }
  }
}
