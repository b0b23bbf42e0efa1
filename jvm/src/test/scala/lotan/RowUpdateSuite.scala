package lotan

import java.util

import scala.jdk.CollectionConverters._

import org.scalatest.funsuite.AnyFunSuite

/** Against the formulas in double precision; `tests/training/test_learned_rows_in_spark.py` compares with torch itself. */
class RowUpdateSuite extends AnyFunSuite with LocalSpark {
  private val rows = new Rows(2, Array(0.5f, -1f, 2f, 0.25f))
  private val gradient = new Rows(2, Array(0.1f, -0.3f)) // of the first row alone
  private val gradients = Seq(0.1, -0.3, 0, 0)

  private def numbers(values: (String, Double)*): util.Map[String, _] =
    (Map("scale" -> 1.0, "weight_decay" -> 0.0) ++ values).map { case (name, value) =>
      name -> Double.box(value)
    }.asJava

  private def close(found: Rows, expected: Seq[Double]): Unit =
    for ((one, other) <- found.values.toSeq.zip(expected)) assert(math.abs(one - other) < 1e-6)

  test("SGD with weight decay and a gradient that is scaled") {
    val step = numbers(
      "scale" -> 0.5,
      "weight_decay" -> 0.1,
      "rate" -> 0.2,
      "momentum" -> 0.0,
      "share" -> 1.0,
      "nesterov" -> 0.0
    )
    val made = RowUpdate("SGD", step)(Array(rows), gradient).head
    close(made, rows.values.toSeq.zip(gradients).map { case (row, own) => row - 0.2 * (0.5 * own + 0.1 * row) })
    assert(rows.values.toSeq == Seq(0.5f, -1f, 2f, 0.25f), "the rows given stay, for a task that is tried again")
  }

  test("Adagrad leaves rows without a gradient, and adds up squares") {
    val before = new Rows(2, Array(1f, 1f, 1f, 1f))
    val made = RowUpdate("Adagrad", numbers("rate" -> 0.2, "eps" -> 1e-10))(Array(rows, before), gradient)
    close(made(1), gradients.map(own => 1 + own * own))
    close(
      made(0),
      rows.values.toSeq.zip(gradients).map { case (row, own) => row - 0.2 * own / math.sqrt(1 + own * own) }
    )
  }

  test("Adam moves rows without a gradient, by what it remembers") {
    val (mean, square) = (new Rows(2, Array.fill(4)(0.5f)), new Rows(2, Array.fill(4)(4f)))
    val step = numbers(
      "rate" -> 0.1,
      "eps" -> 0.0,
      "shrink" -> 0.9,
      "root" -> 0.5,
      "new_mean" -> 0.1,
      "old_square" -> 0.75,
      "new_square" -> 0.25
    )
    val made = RowUpdate("Adam", step)(Array(rows, mean, square), gradient)
    val (means, squares) = (gradients.map(own => 0.45 + 0.1 * own), gradients.map(own => 3 + 0.25 * own * own))
    close(made(1), means)
    close(made(2), squares)
    val moved = rows.values.toSeq.zip(means.zip(squares))
    close(made(0), moved.map { case (row, (m, s)) => 0.9 * row - 0.1 * m / (math.sqrt(s) / 0.5) })
  }

  test("another optimizer, a missing number and a gradient of another width are refused") {
    assert(intercept[IllegalArgumentException](RowUpdate("Rprop", numbers())).getMessage.contains("'Rprop'"))
    assert(intercept[IllegalArgumentException](RowUpdate("Adagrad", numbers())).getMessage.contains("'rate'"))
    val update = RowUpdate("Adagrad", numbers("rate" -> 0.2, "eps" -> 1e-10))
    val wide = new Rows(4, Array.fill(4)(1f))
    assert(intercept[IllegalArgumentException](update(Array(rows, rows), wide)).getMessage.contains("of width 4"))
  }

  test("rows and their state lie in one RDD, whose steps need no earlier one") {
    val graph = RandomGraph(2, 6, 10, text = false)
    val loaded = graph.load(spark, 9, Map("x" -> RandomGraph.column(2, graph.count, 3)))
    val x = loaded.columns("x")
    val kept = Facade.rowsWithState(x, Seq(Facade.filledRows(x, 0.5)).asJava)
    Facade.keep(kept)
    val own = Facade.rowsWithState(x, Seq.empty.asJava)
    val next = Facade.updateRows(kept, own, "Adagrad", numbers("rate" -> 0.2, "eps" -> 1e-10))
    Facade.keep(next)
    try {
      Facade.force(Seq[org.apache.spark.rdd.RDD[_]](kept, next).asJava)
      assert(next.dependencies.map(_.rdd.dependencies.size) == Seq(0), "nothing before it is computed again")
      Facade.release(kept)
      val found = Facade.partOfRows(loaded, next, 1, Block.All).collect().flatMap(_.values)
      val all = x.collect().flatMap(_.values)
      assert(found.toSeq == all.map(value => 0.5f + value * value).toSeq)
      assert(math.abs(Facade.squares(own) - all.map(value => value.toDouble * value).sum) < 1e-9)
    } finally {
      Facade.release(kept)
      Facade.release(next)
      loaded.close()
    }
  }
}
