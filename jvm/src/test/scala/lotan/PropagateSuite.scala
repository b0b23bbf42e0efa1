package lotan

import org.apache.spark.rdd.RDD
import org.scalatest.funsuite.AnyFunSuite

class PropagateSuite extends AnyFunSuite with LocalSpark {
  private val directions =
    for (set <- Seq(EdgeSet.Graph, EdgeSet.SelfLoops); weighted <- Seq(false, true); reverse <- Seq(false, true))
      yield Propagate(set, weighted, reverse)

  private def withColumn(graph: RandomGraph, partitions: Int, x: Array[Array[Float]])(
      check: (RDD[Block], RDD[Rows]) => Any
  ): Unit = {
    val loaded = graph.load(spark, partitions, Map("x" -> x))
    try { val _ = check(loaded.blocks, loaded.columns("x")) }
    finally loaded.close()
  }

  for ((partitions, text) <- Seq((1, true), (2, false), (3, true), (7, false)))
    test(s"sums are those of the definition: $partitions partitions, ${if (text) "string" else "long"} ids") {
      val graph = RandomGraph(10 + partitions, 80, 200, text)
      val x = RandomGraph.column(partitions, graph.count, 6)
      withColumn(graph, partitions, x) { (blocks, column) =>
        for (step <- directions) {
          val expected = graph.propagate(x, step.edges, step.weighted, step.reverse)
          val forms = Seq(false, true).map(shared => graph.read(blocks, step(blocks, column, shared)))
          assert(RandomGraph.close(forms.head, expected), step.toString)
          assert(forms.head.map(_.toSeq).toSeq == forms.last.map(_.toSeq).toSeq, step.toString) // the same bits
        }
      }
    }

  for (width <- Seq(1, 3, 7, 16, 31, 64, 257))
    test(s"width $width") {
      val graph = RandomGraph(width, 40, 120)
      val x = RandomGraph.column(width, graph.count, width)
      withColumn(graph, 3, x) { (blocks, column) =>
        for (step <- directions if step.weighted == (step.edges == EdgeSet.SelfLoops)) {
          val expected = graph.propagate(x, step.edges, step.weighted, step.reverse)
          for (shared <- Seq(false, true))
            assert(RandomGraph.close(graph.read(blocks, step(blocks, column, shared)), expected), step.toString)
        }
      }
    }

  test("more partitions than vertices") {
    val graph = RandomGraph(3, 4, 10)
    val x = RandomGraph.column(3, graph.count, 2)
    withColumn(graph, 9, x) { (blocks, column) =>
      assert(blocks.map(_.count).collect().contains(0))
      for (step <- directions)
        assert(
          RandomGraph.close(
            graph.read(blocks, step(blocks, column, shared = false)),
            graph.propagate(x, step.edges, step.weighted, step.reverse)
          )
        )
    }
  }

  test("reverse is the adjoint of forward: <A x, y> = <x, A' y>, exactly on integers") {
    val plain = RandomGraph(21, 70, 250)
    val graph = plain.copy(edges = plain.edges.map(e => e.copy(_3 = math.round(e._3 * 10).toFloat)))
    val x = RandomGraph.column(1, graph.count, 4).map(_.map(v => math.round(v * 10).toFloat))
    val y = RandomGraph.column(2, graph.count, 4).map(_.map(v => math.round(v * 10).toFloat))
    def inner(a: Array[Array[Float]], b: Array[Array[Float]]): Double =
      a.zip(b).map { case (p, q) => p.zip(q).map { case (u, v) => u.toDouble * v }.sum }.sum
    val loaded = graph.load(spark, 3, Map("x" -> x, "y" -> y))
    try
      for (step <- directions if !step.reverse) {
        val ax = graph.read(loaded.blocks, step(loaded.blocks, loaded.columns("x"), shared = false))
        val aty =
          graph.read(loaded.blocks, step.copy(reverse = true)(loaded.blocks, loaded.columns("y"), shared = true))
        assert(inner(ax, y) == inner(x, aty), step.toString)
      }
    finally loaded.close()
  }

  test("bit-identical on one core and on two, and for edges in any order") {
    val graph = RandomGraph(5, 90, 400)
    val x = RandomGraph.column(5, graph.count, 33)
    def bits(graph: RandomGraph, oneByOne: Boolean): Seq[Seq[Int]] = {
      val loaded = graph.load(spark, 3, Map("x" -> x))
      try
        for (step <- directions; shared <- Seq(false, true)) yield {
          val sums = step(loaded.blocks, loaded.columns("x"), shared)
          // A job per partition runs on one core.
          val parts =
            if (!oneByOne) sums.collect()
            else
              (0 until 3)
                .flatMap(p => spark.sparkContext.runJob(sums, (rows: Iterator[Rows]) => rows.next(), Seq(p)))
                .toArray
          parts.toSeq.flatMap(_.values.map(java.lang.Float.floatToRawIntBits))
        }
      finally loaded.close()
    }
    val expected = bits(graph, oneByOne = false)
    assert(bits(graph, oneByOne = true) == expected)
    assert(bits(graph.copy(edges = graph.edges.reverse), oneByOne = false) == expected)
  }

  test("a chain of lazy columns, with more partitions than cores") {
    val graph = RandomGraph(8, 60, 150)
    val plain = graph.copy(edges = graph.edges.map(_.copy(_3 = 0.1f)))
    val x = RandomGraph.column(8, graph.count, 3)
    val step = Propagate(EdgeSet.SelfLoops, weighted = true, reverse = false)
    withColumn(plain, 7, x) { (blocks, column) =>
      val results = for (shared <- Seq(false, true)) yield {
        val columns = Iterator.iterate(column)(step(blocks, _, shared).persist()).take(4).toSeq
        try graph.read(blocks, columns.last).map(_.toSeq).toSeq
        finally columns.drop(1).foreach(_.unpersist(blocking = true))
      }
      assert(results.head == results.last)
    }
  }

  test("rows computed as they are read are those of the whole column, whichever are read") {
    val graph = RandomGraph(6, 50, 170)
    val x = RandomGraph.column(6, graph.count, 9)
    withColumn(graph, 3, x) { (blocks, column) =>
      for (step <- directions) {
        val whole = step(blocks, column, shared = true).collect()
        val parts = step
          .asRead(blocks, column)
          .map { sums =>
            val pieces = for (from <- (0 until sums.count by 4).reverse) yield {
              val until = math.min(from + 4, sums.count)
              val into = Array.fill(4 * sums.width)(Float.NaN) // whatever was there
              sums.read(from, until, into)
              into.take((until - from) * sums.width)
            }
            pieces.reverse.flatten.toArray
          }
          .collect()
        assert(parts.map(_.toSeq).toSeq == whole.map(_.values.toSeq).toSeq, step.toString)
      }
    }
  }

  test("a sum of columns, read in parts") {
    val ones = new Rows(2, Array.tabulate(10)(_.toFloat))
    val tens = new Rows(2, Array.tabulate(10)(_ * 10f))
    val into = new Array[Float](6)
    new SummedRows(Seq(ones, new LaterRows(() => tens))).read(1, 4, into)
    assert(into.toSeq == (2 until 8).map(_ * 11f))
  }

  test("a column of the wrong length is refused") {
    val graph = RandomGraph(5, 20, 30)
    withColumn(graph, 2, RandomGraph.column(5, graph.count, 2)) { (blocks, column) =>
      val short = column.map(rows => new Rows(rows.width, rows.values.drop(rows.width)))
      for (shared <- Seq(false, true)) {
        val sums = Propagate(EdgeSet.Graph, weighted = false, reverse = false)(blocks, short, shared)
        assert(intercept[Exception](sums.count()).getMessage.contains("rows in a partition of"))
      }
    }
  }
}
