package lotan

import org.scalatest.funsuite.AnyFunSuite

import EdgeFunction._
import EdgeSamples.Heads

class EdgeExpressionSuite extends AnyFunSuite with LocalSpark {

  test("both ends, the weight, edge columns and constants") {
    val sum = Two("add", Source(0), Two("sub", Destination(0), Two("mul", Edge(0), Weight)))
    val function = Two("div", One("leaky_relu", sum, 0.2f), Constant(4))
    EdgeSamples.each(spark) { samples =>
      import samples.{blocks, graph}
      val (a, b) = (graph.read(blocks, samples.column("a")), graph.read(blocks, samples.column("b")))
      val edges = samples.edgeColumn(Heads)(EdgeSamples.numbers(_, Heads))
      for (shared <- Seq(false, true)) {
        val step = EdgeExpression(samples.scope, function, Heads)
        val found = step(blocks, Seq(samples.sources("a", shared)), Seq(samples.destinations("b")), Seq(edges))
        for ((edge @ (src, dst, weight), values) <- samples.read(found); h <- 0 until Heads) {
          val x = a(src)(h) + (b(dst)(h) - EdgeSamples.numbers(edge, Heads)(h) * weight)
          assert(math.abs(values(h) - (if (x > 0) x else 0.2f * x) / 4) < 1e-5)
        }
      }
    }
  }

  for (
    (name, truth) <- Seq[(String, Double => Double)](
      ("neg", -_),
      ("exp", math.exp),
      ("sigmoid", x => 1 / (1 + math.exp(-x))),
      ("tanh", math.tanh),
      ("leaky_relu", x => if (x > 0) x else x * 0.25),
      ("leaky_relu_slope", x => if (x > 0) 1 else 0.25)
    )
  )
    test(name) {
      val x = Array(-3f, -0.5f, 0f, 0.5f, 3f)
      val found = x.clone()
      Unary(name)(found, 0.25f, x.length)
      for (i <- x.indices) assert(math.abs(found(i) - truth(x(i).toDouble)) < 1e-6)
    }

  test("a function from text") {
    val found =
      EdgeFunction.parse("source:1 destination:0 sub weight mul exp edge:2 constant:0.5 add div leaky_relu:0.2")
    val top = One("exp", Two("mul", Two("sub", Source(1), Destination(0)), Weight))
    assert(found == One("leaky_relu", Two("div", top, Two("add", Edge(2), Constant(0.5f))), 0.2f))
    for (broken <- Seq("add", "source:0 weight", "source:0 erf"))
      assert(intercept[IllegalArgumentException](EdgeFunction.parse(broken)).getMessage.contains(broken))
  }

  test("an unknown operation and a column of another width are refused") {
    assert(intercept[IllegalArgumentException](One("erf", Source(0))).getMessage.contains("erf"))
    assert(intercept[IllegalArgumentException](Two("pow", Source(0), Weight)).getMessage.contains("pow"))
    EdgeSamples.each(spark) { samples =>
      val step = EdgeExpression(samples.scope, Source(0), 1)
      val found = step(samples.blocks, Seq(samples.sources("a", shared = true)), Nil, Nil)
      assert(intercept[Exception](found.count()).getMessage.contains("a column of width 3"))
    }
  }
}
