package lotan

import org.scalatest.funsuite.AnyFunSuite

class EdgeScopeSuite extends AnyFunSuite with LocalSpark {

  test("edges that end within a level come first, and outputs have the rows of theirs") {
    EdgeSamples.each(spark) { samples =>
      for (block <- samples.blocks.collect()) {
        val (order, all) = (samples.scope.order(block), block.edges(samples.set).order)
        assert(order.destinations.toSeq == all.destinations.take(order.edges).toSeq)
        assert(order.matrix.columns.toSeq == all.matrix.columns.take(order.edges).toSeq)
        assert(order.edges == all.destinations.count(_ < block.rows(samples.within)))
        assert(order.bySource.toSeq == all.bySource.filter(_ < order.edges).toSeq)
        val exact = samples.scope.copy(made = samples.within)
        assert(exact.edgeRows(block, 2).count == order.edges)
        assert(exact.vertexRows(block, 2).count == block.rows(samples.within))
        assert(samples.scope.edgeRows(block, 2).count == all.edges)
        assert(samples.scope.vertexRows(block, 2).count == block.count)
      }
    }
  }

  test("sources that no edge begins at are left out where they come last") {
    val order = new EdgeOrder(new Csr(Array(0, 2, 3), Array(1, 4, 1), None), 7, 3)
    assert(Seq(0 until 7, 0 until 4, 2 until 4, 5 until 7, 3 until 5).map(order.used(_).end) == Seq(5, 2, 2, 5, 5))
  }

  test("rows for fewer edges than a step is about are refused") {
    for (wrong <- Seq(() => EdgeScope(EdgeSet.Graph, 2, 1), () => EdgeScope(EdgeSet.Graph, Block.All, 1)))
      assert(intercept[IllegalArgumentException](wrong()).getMessage.contains("rows up to level 1"))
    val sums = intercept[IllegalArgumentException] {
      EdgeSum(EdgeScope(EdgeSet.Graph, 1, 1), bySource = true)(null, null, 1, shared = true)
    }
    assert(sums.getMessage.contains("sums up to level 1"))
  }
}
