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

  test("a column of other edges is refused") {
    EdgeSamples.each(spark) { samples =>
      val short = samples.edgeColumn(1)(_ => Array(1f)).map(rows => new Rows(1, rows.values.drop(1)))
      val sums = EdgeSum(samples.set, bySource = false)(samples.blocks, short, 1, shared = true)
      assert(intercept[Exception](sums.count()).getMessage.contains("an edge column has"))
    }
  }
}
