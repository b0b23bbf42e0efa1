package lotan

import org.scalatest.funsuite.AnyFunSuite

class DegreesSuite extends AnyFunSuite with LocalSpark {

  for (partitions <- Seq(1, 3, 7))
    test(s"degrees and GCN's scale are those of the definition: $partitions partitions") {
      val graph = RandomGraph(partitions, 40, 90, text = partitions == 3)
      val loaded = graph.load(spark, partitions, Map.empty, hubEdges = 5)
      try {
        val in = (0 until graph.count).map(v => graph.edges.count(_._2 == v))
        val found = graph.read(loaded.blocks, Degrees.inDegree(loaded.blocks))
        assert(found.map(_.toSeq).toSeq == in.map(degree => Seq(math.max(1, degree).toFloat)))
        assert(in.contains(0) && in.exists(_ > 1))
        for (set <- Seq(EdgeSet.Graph, EdgeSet.SelfLoops); weighted <- Seq(false, true)) {
          val scales = (0 until graph.count).map { v =>
            val total = graph.edgesOf(set).filter(_._2 == v).map(e => if (weighted) e._3.toDouble else 1.0).sum
            Array(if (total > 0) 1 / math.sqrt(total) else 0.0)
          }
          val ours = graph.read(loaded.blocks, Degrees.gcnScale(loaded.blocks, set, weighted))
          assert(RandomGraph.close(ours, scales.toArray), s"$set, weighted: $weighted")
        }
      } finally loaded.close()
    }
}
