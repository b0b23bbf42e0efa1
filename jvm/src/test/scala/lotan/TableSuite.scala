package lotan

import org.scalatest.funsuite.AnyFunSuite

class TableSuite extends AnyFunSuite with LocalSpark {

  for (text <- Seq(false, true))
    test(s"every vertex once, with its own row: ${if (text) "string" else "long"} ids, an empty partition") {
      val graph = RandomGraph(2, 6, 10, text)
      val x = RandomGraph.column(2, graph.count, 3)
      val loaded = graph.load(spark, 9, Map("x" -> x))
      try {
        assert(loaded.blocks.map(_.count).collect().contains(0))
        val found = Table(loaded.blocks, loaded.columns("x")).collect().map(row => row.get(0) -> row.getSeq[Float](1))
        assert(found.length == graph.count)
        assert(found.toMap == (0 until graph.count).map(v => graph.id(v) -> x(v).toSeq).toMap)
      } finally loaded.close()
    }
}
