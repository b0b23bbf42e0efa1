package lotan

import org.apache.spark.rdd.RDD
import org.scalatest.funsuite.AnyFunSuite

/** Propagate on graphs with hubs: half of all edges end in vertex 0, or begin there. */
class HubSuite extends AnyFunSuite with LocalSpark {
  private val LeastEdges = 5
  private val Width = 6
  private val steps =
    for ((set, weighted) <- Seq((EdgeSet.Graph, false), (EdgeSet.SelfLoops, true)); reverse <- Seq(false, true))
      yield Propagate(set, weighted, reverse)

  private def each(check: (RandomGraph, Array[Array[Float]], LoadedGraph) => Any): Unit =
    for {
      (partitions, text, count) <- Seq((2, false, 40), (5, true, 6))
      plain = RandomGraph(partitions, count, 200, text)
      graph <- Seq(plain, plain.turned)
    } {
      val x = RandomGraph.column(partitions, graph.count, Width)
      val loaded = graph.load(spark, partitions, Map("x" -> x), LeastEdges)
      try {
        assert(loaded.hubs)
        check(graph, x, loaded)
      } finally loaded.close()
    }

  private def bits(column: RDD[Rows]): Seq[Seq[Int]] =
    column.collect().toSeq.map(_.values.toSeq.map(java.lang.Float.floatToRawIntBits))

  test("sums are those of the definition, with the same bits in one JVM as by shuffles") {
    each { (graph, x, loaded) =>
      for (step <- steps) {
        val expected = graph.propagate(x, step.edges, step.weighted, step.reverse)
        val forms = Seq(false, true).map(step(loaded.blocks, loaded.columns("x"), _, hubs = true))
        assert(RandomGraph.close(graph.read(loaded.blocks, forms.head), expected), step.toString)
        assert(bits(forms.head) == bits(forms.last), step.toString)
        val inTurn = InTurnSuite.bits(InTurn(step, hubs = true), loaded.blocks, loaded.columns("x"))
        assert(inTurn == bits(forms.last), step.toString)
        val whole = step(loaded.blocks, loaded.columns("x"), shared = true) // without the exchange for hubs
        assert(RandomGraph.close(graph.read(loaded.blocks, whole), expected), step.toString)
      }
    }
  }

  test("rows computed as they are read are those of the whole column, whichever are read") {
    each { (_, _, loaded) =>
      for (step <- steps) {
        val whole = step(loaded.blocks, loaded.columns("x"), shared = true, hubs = true)
        val width = Width // and not the suite's
        val parts = step.asRead(loaded.blocks, loaded.columns("x"), hubs = true).map { sums =>
          val pieces = for (from <- (0 until sums.count by 4).reverse) yield {
            val into = Array.fill(4 * width)(Float.NaN) // whatever was there
            val until = math.min(from + 4, sums.count)
            sums.read(from, until, into)
            into.take((until - from) * width)
          }
          new Rows(width, pieces.reverse.flatten.toArray)
        }
        assert(bits(parts) == bits(whole), step.toString)
      }
    }
  }

  test("the same bits from one core as from two") {
    val graph = RandomGraph(5, 40, 200)
    val loaded = graph.load(spark, 3, Map("x" -> RandomGraph.column(5, graph.count, Width)), LeastEdges)
    try
      for (reverse <- Seq(false, true); shared <- Seq(false, true)) {
        val sums = Propagate(EdgeSet.Graph, weighted = true, reverse)(loaded.blocks, loaded.columns("x"), shared, true)
        val oneByOne = (0 until 3).flatMap { p =>
          spark.sparkContext.runJob(sums, (rows: Iterator[Rows]) => rows.next(), Seq(p))
        }
        assert(bits(spark.sparkContext.parallelize(oneByOne, 3)) == bits(sums))
      }
    finally loaded.close()
  }

  test("reverse is the adjoint of forward: <A x, y> = <x, A' y>, exactly on integers") {
    val plain = RandomGraph(21, 70, 250)
    def whole(rows: Array[Array[Float]]) = rows.map(_.map(v => math.round(v * 10).toFloat))
    val (x, y) = (whole(RandomGraph.column(1, 70, Width)), whole(RandomGraph.column(2, 70, Width)))
    val graph = plain.copy(edges = plain.edges.map(e => e.copy(_3 = math.round(e._3 * 10).toFloat)))
    for (one <- Seq(graph, graph.turned)) {
      val loaded = one.load(spark, 3, Map("x" -> x, "y" -> y), LeastEdges)
      def sums(step: Propagate, column: String, shared: Boolean) =
        one.read(loaded.blocks, step(loaded.blocks, loaded.columns(column), shared, hubs = true))
      try
        for (step <- steps if !step.reverse) {
          val (ax, aty) = (sums(step, "x", shared = false), sums(step.copy(reverse = true), "y", shared = true))
          assert(EdgeSamples.inner(ax, y) == EdgeSamples.inner(x, aty), step.toString)
        }
      finally loaded.close()
    }
  }

  test("no partition sums more than its share, and a hub's sources stay where they are") {
    val graph = RandomGraph(1, 400, 4000)
    val loaded = graph.load(spark, 4, Map("x" -> RandomGraph.column(1, 400, 1)), LeastEdges)
    try {
      val blocks = loaded.blocks.collect()
      val summed = blocks.map(block => block.withoutHubs.graph.forward.edges + block.hubs.forward.edges)
      assert(summed.sum == graph.edges.size)
      val mean = summed.sum / blocks.length
      assert(summed.max < 1.4 * mean && blocks.map(_.graph.forward.edges).max > 2 * mean)
      val owner = blocks.find(_.hubs.own.length == 1).get
      val hub = owner.hubs.own.head
      val in = owner.withoutHubs.graph.forward
      assert((in.indptr(hub) until in.indptr(hub + 1)).forall(in.columns(_) < owner.count))
    } finally loaded.close()
  }

  test("what has few edges is no hub") {
    val graph = RandomGraph(1, 40, 100)
    val loaded = graph.load(spark, 3, Map("x" -> RandomGraph.column(1, 40, 1)))
    try assert(!loaded.hubs && loaded.blocks.collect().forall(block => block.withoutHubs eq block))
    finally loaded.close()
  }
}
