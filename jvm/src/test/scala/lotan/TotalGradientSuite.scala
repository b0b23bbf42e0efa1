package lotan

import org.apache.spark.rdd.RDD
import org.scalatest.funsuite.AnyFunSuite

class TotalGradientSuite extends AnyFunSuite with LocalSpark {

  private val kinds = Seq("sum", "mean", "sample", "moments")

  /** The gradient of one row by the definition, in double. */
  private def expected(kind: String, n: Int, g: Seq[Double], mean: Seq[Double], x: Seq[Float], s: Double): Seq[Double] =
    kind match {
      case "sum" => g.map(s * _)
      case "mean" => g.map(s * _ / n)
      case "sample" => g.map(s * _ / (n - 1))
      case _ => x.indices.map(i => s * (g(2 * i) + 2 * (s * x(i) - mean(i)) * g(2 * i + 1)) / n)
    }

  for (kind <- kinds; scaled <- Seq(false, true); shared <- Seq(false, true))
    test(s"the gradient of $kind is that of the definition: scaled $scaled, one JVM $shared") {
      val width = 3
      val partitions = 3
      val graph = RandomGraph(partitions, 30, 60, text = false)
      val (x, plus) = (RandomGraph.column(1, graph.count, width), RandomGraph.column(2, graph.count, width))
      val scale = RandomGraph.column(3, graph.count, 1)
      val loaded = graph.load(spark, partitions, Map("x" -> x, "plus" -> plus, "scale" -> scale))
      try {
        val (blocks, columns) = (loaded.blocks, loaded.columns)
        val by = Option.when(scaled)(columns("scale"))
        val wide = if (kind == "moments") 2 * width else width
        // two chunks for each partition that has vertices, of rows of numbers that depend on nothing but their place
        val chunks: RDD[RowReader] = blocks.map { block =>
          val rows = if (block.count == 0) 0 else 2
          new Rows(wide, Array.tabulate(rows * wide)(i => 0.5f * (block.partition + 1) + i))
        }
        val sums = Total(kind).parts(blocks, columns("x"), by).cache()
        val step = TotalGradient(kind, graph.count.toLong)
        val parts = step.parts(blocks, Seq(chunks)).cache()
        val total = Total(kind).asRead(blocks, sums, shared)
        val reduced = Option.when(kind == "moments")((columns("x"), total))
        val ways = Seq(columns("plus"), columns("plus").map(new Copies(_): RowReader))
        val found = ways.map(more => step(blocks, parts, reduced, by, Seq(more), shared).collect().toSeq)
        assert(found.map(_.map(_.values.toSeq)).distinct.size == 1) // the same bits in every way

        val g = chunks.collect().toSeq.flatMap(rows => all(rows)).transpose.map(_.map(_.toDouble).sum)
        val n = graph.count
        val (xs, ps, ss) =
          (rowsOf(columns("x")), rowsOf(columns("plus")), rowsOf(columns("scale")).map(_.head.toDouble))
        val factors = if (scaled) ss else ss.map(_ => 1.0)
        val mean = xs.zip(factors).map { case (row, s) => row.map(_ * s) }.transpose.map(_.sum / n)
        val rows = found.head.flatMap(part => part.values.grouped(width).map(_.toSeq))
        assert(rows.size == n)
        for (i <- rows.indices; want = expected(kind, n, g, mean, xs(i), factors(i)); j <- 0 until width) {
          val truth = want(j) + ps(i)(j)
          assert(math.abs(rows(i)(j) - truth) <= 1e-4 * math.max(1, math.abs(truth)))
        }
        for (held <- Seq(sums, parts)) { val _ = held.unpersist(blocking = true) }
      } finally loaded.close()
    }

  private def rowsOf(column: RDD[Rows]): Seq[Seq[Float]] = column.collect().toSeq.flatMap(all)

  private def all(rows: RowReader): Seq[Seq[Float]] = {
    val out = new Array[Float](rows.count * rows.width)
    rows.read(0, rows.count, out)
    out.grouped(rows.width).map(_.toSeq).toSeq
  }
}

/** Rows that only exist as they are read. */
final private class Copies(rows: Rows) extends RowReader with Serializable {
  override def width: Int = rows.width
  override def count: Int = rows.count
  override def read(from: Int, until: Int, into: Array[Float]): Unit = rows.read(from, until, into)
}
