package lotan

import org.apache.spark.sql.functions.{array, col}
import org.scalatest.funsuite.AnyFunSuite

class TurnedSuite extends AnyFunSuite with LocalSpark {
  private val Reversed = EdgeSet("reversed")
  private val ReversedSelfLoops = EdgeSet("reversed_self_loops")

  private def load(graph: RandomGraph, partitions: Int, columns: Map[String, Array[Array[Float]]]): LoadedGraph = {
    val settings = Load(partitions, columns.keys.toSeq, Some("weight"), 5, Some("data"), 1, turned = true)
    settings(graph.vertices(spark, columns), graph.edgeTable(spark).withColumn("data", array(col("weight"))))
  }

  test("names") {
    for (name <- Seq("reversed", "reversed_self_loops", "reversed:3", "reversed_self_loops:12")) {
      assert(EdgeSet(name).name == name)
      assert(EdgeSet(name).reversed)
    }
    assertThrows[IllegalArgumentException](EdgeSet("reversed_graph"))
  }

  for (partitions <- Seq(1, 5))
    test(s"they are the blocks of the graph with its ends exchanged: $partitions partitions") {
      val graph = RandomGraph(partitions, 60, 160, text = partitions == 3)
      val loaded = load(graph, partitions, Map.empty)
      val other = graph.turned.load(spark, partitions, Map.empty)
      try
        for ((found, expected) <- loaded.along(Reversed).collect().zip(other.blocks.collect())) {
          assert(found.sourceKeys.toSeq == expected.sourceKeys.toSeq)
          assert(found.haloStart.toSeq == expected.haloStart.toSeq)
          assert(found.send.map(_.toSeq).toSeq == expected.send.map(_.toSeq).toSeq)
          for ((own, its) <- Seq(found.graph -> expected.graph, found.selfLoops -> expected.selfLoops)) {
            val (one, two) = (own.withLoops, its.withLoops)
            assert(one.indptr.toSeq == two.indptr.toSeq && one.columns.toSeq == two.columns.toSeq)
            assert(one.weights.get.toSeq == two.weights.get.toSeq)
          }
        }
      finally {
        loaded.close()
        other.close()
      }
    }

  test("vertices have one order in both, also by level") {
    val graph = RandomGraph(5, 60, 90)
    val x = RandomGraph.column(1, graph.count, 3)
    val split = Array.tabulate(graph.count)(v => Array(if (v == 7) 0f else -1f))
    val loaded = LevelOrder(1)(load(graph, 3, Map("x" -> x, "split" -> split)))
    try
      for (set <- Seq(Reversed, ReversedSelfLoops); shared <- Seq(false, true)) {
        val sums = Propagate(set, weighted = true, reverse = false)(loaded.along(set), loaded.columns("x"), shared)
        val expected = graph.turned.propagate(x, set, weighted = true, reverse = false)
        assert(RandomGraph.close(graph.read(loaded.blocks, sums), expected), set.name)
      }
    finally loaded.close()
  }

  test("self-loops that are added have the mean over the edges that end at their vertex") {
    val graph = RandomGraph(8, 40, 60)
    val loaded = load(graph, 3, Map.empty)
    val number = (0 until graph.count).map(v => graph.id(v).asInstanceOf[Long] -> v).toMap
    try {
      val near = Collect(ReversedSelfLoops, 8, columns = Seq(EdgeColumn("edge_attr[mean]")))(loaded)
      var added = 0
      for ((block, chunks) <- loaded.blocks.zip(near).collect(); chunk <- chunks; row <- 0 until chunk.matrix.rows) {
        val vertex = number(block.ids.asInstanceOf[LongIds].values(chunk.firstRow + row))
        val (into, loops) = graph.edges.filter(_._2 == vertex).partition(_._1 != vertex)
        val mean = if (into.isEmpty) 0f else into.map(_._3).sum / into.length
        for (edge <- chunk.matrix.indptr(row) until chunk.matrix.indptr(row + 1)) {
          val isLoop = chunk.sources(chunk.matrix.columns(edge)) == chunk.firstRow + row
          val found = chunk.columns("edge_attr[mean]").values(edge)
          if (isLoop && loops.isEmpty) {
            assert(math.abs(found - mean) < 1e-4)
            added += 1
          } else assert(found == chunk.matrix.weights.get(edge))
        }
      }
      assert(added > 0)
    } finally loaded.close()
  }

  test("edges that were not loaded are refused") {
    val loaded = RandomGraph(2, 20, 30).load(spark, 1, Map.empty)
    try assertThrows[IllegalArgumentException](loaded.along(Reversed))
    finally loaded.close()
  }
}
