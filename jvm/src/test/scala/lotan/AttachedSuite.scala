package lotan

import org.scalatest.funsuite.AnyFunSuite

class AttachedSuite extends AnyFunSuite with LocalSpark {

  for (text <- Seq(false, true))
    test(
      s"each vertex gets its row, in the order of levels: ${if (text) "string" else "long"} ids, an empty partition"
    ) {
      val graph = RandomGraph(2, 6, 10, text)
      val x = RandomGraph.column(2, graph.count, 3)
      val split = RandomGraph.column(3, graph.count, 1).map(_.map(value => if (value > 0) 0f else -1f))
      val loaded = LevelOrder(1)(graph.load(spark, 9, Map("x" -> x, "split" -> split)))
      try {
        val table = Table(loaded.blocks, loaded.columns("x")).orderBy("id")
        val found = Attached(loaded.blocks, table).collect()
        val wanted = loaded.columns("x").collect()
        assert(found.map(_.values.toSeq).toSeq == wanted.map(_.values.toSeq).toSeq)
        val failure = intercept[Exception](Attached(loaded.blocks, table.limit(graph.count - 1)).collect())
        assert(failure.getMessage.contains("no row came for the vertex"))
      } finally loaded.close()
    }
}
