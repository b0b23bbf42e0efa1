package lotan

import org.scalatest.funsuite.AnyFunSuite

import EdgeSamples.Heads

class EdgeDropoutSuite extends AnyFunSuite with LocalSpark {

  test("keys and numbers are those that Python computes") {
    import spark.implicits._
    val vertices = Seq(5L, 7L, 1000003L).toDF("id")
    val edges = Seq((5L, 1000003L, 1f), (7L, 5L, 2f), (7L, 5L, 1f)).toDF("src", "dst", "weight")
    val (a, b, c) = (-3058209885058201948L, -7950324554079108497L, 540501209970256762L)
    val kept = 65536f / (65536 - 19661)
    val expected = Map(
      a -> Seq(0f, kept, kept, kept, kept, kept),
      b -> Seq(0f, kept, kept, kept, kept, kept),
      c -> Seq(kept, kept, kept, kept, 0f, kept)
    )
    for (partitions <- Seq(1, 2, 3)) {
      val loaded = Load(partitions, Nil, Some("weight"))(vertices, edges)
      try {
        val keys = EdgeKeys(EdgeSet.Graph)(loaded.blocks)
        val ones = keys.map(found => new Rows(6, Array.fill(found.length * 6)(1f)))
        val dropped = EdgeDropout(EdgeScope(EdgeSet.Graph), -8022091035763811183L, 19661)(loaded.blocks, keys, ones)
        val found =
          keys.zip(dropped).collect().flatMap { case (ids, rows) => ids.zip(rows.values.grouped(6).map(_.toSeq)) }
        assert(found.toMap == expected)
      } finally loaded.close()
    }
  }

  test("a key for every edge, that of a self-loop once, whatever the partitions") {
    EdgeSamples.each(spark) { samples =>
      val found = EdgeKeys(samples.set)(samples.blocks).collect().map(_.toSeq)
      assert(found.flatten.distinct.length == samples.graph.edgesOf(samples.set).size)
    }
  }

  test("it is its own adjoint, and drops a share that is the probability") {
    EdgeSamples.each(spark) { samples =>
      val keys = EdgeKeys(samples.set)(samples.blocks)
      type Numbers = ((Int, Int, Float)) => Array[Float]
      def dropped(numbers: Numbers) = {
        val dropout = EdgeDropout(samples.scope, 12345L, 1 << 15)
        samples.read(dropout(samples.blocks, keys, samples.edgeColumn(Heads)(numbers))).map(_._2)
      }
      def rows(numbers: Numbers) = samples.edges.flatten.map(numbers)
      val x: Numbers = EdgeSamples.numbers(_, Heads)
      val y: Numbers = edge => Array.fill(Heads)(edge._3)
      assert(EdgeSamples.inner(dropped(x), rows(y)) == EdgeSamples.inner(rows(x), dropped(y)))
      val ones = dropped(_ => Array.fill(Heads)(1f)).flatten
      assert(ones.toSet == Set(0f, 2f))
      assert(ones.size < 100 || math.abs(ones.sum / ones.size - 1) < 0.3)
    }
  }
}
