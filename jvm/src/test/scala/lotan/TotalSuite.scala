package lotan

import org.apache.spark.rdd.RDD
import org.scalatest.funsuite.AnyFunSuite

class TotalSuite extends AnyFunSuite with LocalSpark {

  private def expected(kind: String, rows: Seq[Seq[Float]]): Seq[Double] =
    rows.transpose.flatMap { numbers =>
      val sum = numbers.map(_.toDouble).sum
      val mean = sum / rows.size
      kind match {
        case "sum" => Seq(sum)
        case "mean" => Seq(mean)
        case "sample" => Seq(sum / (rows.size - 1))
        case "max" => Seq(numbers.max.toDouble)
        case _ => Seq(mean, numbers.map(x => (x - mean) * (x - mean)).sum / rows.size)
      }
    }

  /** Each partition's rows, by the two ways of getting them. */
  private def found(kind: String, blocks: RDD[Block], column: RDD[Rows], shared: Boolean): Seq[Seq[Rows]] = {
    val total = Total(kind)
    val parts = total.parts(blocks, column).cache()
    try {
      val read = total.asRead(blocks, parts, shared).map { reader =>
        val out = Rows.zeros(reader.count, reader.width)
        reader.read(0, reader.count, out.values)
        out
      }
      Seq(total(blocks, parts, shared), read).map(_.collect().toSeq)
    } finally { val _ = parts.unpersist(blocking = true) }
  }

  for (partitions <- Seq(1, 5); kind <- Seq("sum", "mean", "sample", "moments", "max"))
    test(s"$kind over all vertices is that of the definition, for each vertex: $partitions partitions") {
      val graph = RandomGraph(partitions, 40, 90, text = partitions == 3)
      val x = RandomGraph.column(3, graph.count, 4)
      val loaded = graph.load(spark, partitions, Map("x" -> x))
      try {
        val want = expected(kind, x.map(_.toSeq).toSeq)
        val blocks = loaded.blocks
        val all =
          for (shared <- Seq(false, true); one <- found(kind, blocks, loaded.columns("x"), shared)) yield one
        for (one <- all; part <- one; row <- part.values.grouped(part.width); (ours, truth) <- row.toSeq.zip(want))
          assert(math.abs(ours - truth) <= 1e-5 * math.max(1, math.abs(truth)))
        assert(all.map(_.map(_.count)).distinct == Seq(blocks.map(_.count).collect().toSeq))
        assert(all.map(_.map(_.values.toSeq)).distinct.size == 1) // the same bits in every way
      } finally loaded.close()
    }

  test("rows that a column lacks count as zeros") {
    val graph = RandomGraph(2, 40, 90, text = false)
    val x = RandomGraph.column(3, graph.count, 4)
    val loaded = graph.load(spark, 2, Map("x" -> x))
    try {
      val cut = loaded.columns("x").map(rows => new Rows(rows.width, rows.values.take(3 * rows.width)))
      val kept = cut.collect().toSeq.flatMap(rows => rows.values.grouped(rows.width).map(_.toSeq))
      val want = kept.transpose.map(_.map(_.toDouble).sum / graph.count)
      for (one <- found("mean", loaded.blocks, cut, shared = true); part <- one; row <- part.values.grouped(part.width))
        for ((ours, truth) <- row.toSeq.zip(want)) assert(math.abs(ours - truth) < 1e-5)
    } finally loaded.close()
  }

  test("a variance beside a mean that is much larger keeps its digits") {
    val parts = Seq(Seq(1e6, 1e6 + 1), Seq(1e6 + 2), Seq(1e6 + 3)).zipWithIndex.map { case (numbers, partition) =>
      val mean = numbers.sum / numbers.size
      new TotalPart(partition, numbers.size.toLong, Array(mean), Array(numbers.map(x => (x - mean) * (x - mean)).sum))
    }
    val all = parts.reduceLeft(_ + _)
    assert(all.count == 4 && all.mean.toSeq == Seq(1e6 + 1.5) && all.squares.toSeq == Seq(5.0))
  }

  test("an unknown kind is refused") {
    val error = intercept[IllegalArgumentException](Total("median"))
    assert(error.getMessage.contains("'median'"))
  }
}
