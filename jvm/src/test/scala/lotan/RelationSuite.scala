package lotan

import org.scalatest.funsuite.AnyFunSuite

class RelationSuite extends AnyFunSuite with LocalSpark {
  private val relations = for (loops <- Seq(false, true); number <- Seq(0, 1)) yield EdgeSet(loops, Some(number))

  private def load(graph: RandomGraph, partitions: Int, columns: Map[String, Array[Array[Float]]]): LoadedGraph = {
    val edges = graph.edgeTable(spark, edge => Array((edge._1 % 2).toFloat))
    val settings =
      Load(partitions, columns.keys.toSeq, Some("weight"), hubEdges = 5, data = Some("data"), dataWidth = 1)
    settings(graph.vertices(spark, columns), edges)
  }

  test("names") {
    for (name <- Seq("graph", "self_loops", "graph:0", "self_loops:12")) assert(EdgeSet(name).name == name)
    for (wrong <- Seq("edges", "graph:", "graph:-1", "graph:x")) assertThrows[IllegalArgumentException](EdgeSet(wrong))
  }

  for (partitions <- Seq(1, 5))
    test(s"sums, degrees and neighbourhoods of each type of edges: $partitions partitions") {
      val graph = RandomGraph(partitions, 60, 160)
      val x = RandomGraph.column(1, graph.count, 3)
      val loaded = load(graph, partitions, Map("x" -> x))
      try {
        val (blocks, column) = (loaded.blocks, loaded.columns("x"))
        for (set <- relations) {
          for (reverse <- Seq(false, true); shared <- Seq(false, true)) {
            val sums = Propagate(set, weighted = true, reverse)(blocks, column, shared)
            assert(
              RandomGraph.close(graph.read(blocks, sums), graph.propagate(x, set, weighted = true, reverse)),
              set.name
            )
          }
          val in = (0 until graph.count).map(v => math.max(1, graph.edgesOf(set).count(_._2 == v)).toDouble)
          val degrees = graph.read(blocks, Degrees.inDegree(blocks, set))
          assert(RandomGraph.close(degrees, in.map(Array(_)).toArray), set.name)
          val collected = Collect(set, 8)(blocks).collect().flatten.map(_.matrix.edges).sum
          assert(collected == graph.edgesOf(set).length, set.name)
        }
      } finally loaded.close()
    }

  test("the vertices of a level come first for each type of edges, too") {
    val graph = RandomGraph(5, 60, 90)
    val x = RandomGraph.column(1, graph.count, 3)
    val targets = Set(7)
    val split = Array.tabulate(graph.count)(v => Array(if (targets(v)) 0f else -1f))
    val loaded = LevelOrder(1)(load(graph, 3, Map("x" -> x, "split" -> split)))
    try {
      val inside = graph.levels(targets, 3).map(_ <= 1)
      for (set <- relations) {
        val sums = Propagate(set, weighted = false, reverse = false, within = 1)(
          loaded.blocks,
          loaded.columns("x"),
          shared = false
        )
        val padded = loaded.blocks.zipPartitions(sums) { (ofBlock, ofRows) =>
          Iterator.single(new Rows(3, ofRows.next().values.padTo(ofBlock.next().count * 3, 0f)))
        }
        val expected = graph.propagate(x, set, weighted = false, reverse = false).zip(inside).map { case (row, in) =>
          if (in) row else row.map(_ => 0.0)
        }
        assert(RandomGraph.close(graph.read(loaded.blocks, padded), expected), set.name)
      }
    } finally loaded.close()
  }

  test("edges without types have no relations") {
    val graph = RandomGraph(2, 20, 30)
    val loaded = graph.load(spark, 1, Map.empty)
    try assertThrows[IllegalArgumentException](loaded.blocks.first().edges(EdgeSet("graph:0")))
    finally loaded.close()
  }
}
