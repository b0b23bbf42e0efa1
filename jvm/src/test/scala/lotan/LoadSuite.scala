package lotan

import scala.jdk.CollectionConverters._

import org.apache.spark.SparkException
import org.scalatest.funsuite.AnyFunSuite

class LoadSuite extends AnyFunSuite with LocalSpark {
  import spark.implicits._

  for (partitions <- Seq(1, 2, 3, 7); text <- Seq(false, true)) {
    test(s"every vertex and edge is in its place: $partitions partitions, ${if (text) "string" else "long"} ids") {
      val graph = RandomGraph(partitions, 60, 150, text)
      val x = RandomGraph.column(1, graph.count, 5)
      val y = RandomGraph.column(2, graph.count, 1)
      val loaded = graph.load(spark, partitions, Map("x" -> x, "y" -> y))
      try {
        assert(graph.read(loaded.blocks, loaded.columns("x")).map(_.toSeq).toSeq == x.map(_.toSeq).toSeq)
        assert(graph.read(loaded.blocks, loaded.columns("y")).map(_.toSeq).toSeq == y.map(_.toSeq).toSeq)
        val blocks = loaded.blocks.collect()
        checkPlaces(blocks, partitions)
        val occupied = blocks.filter(_.count > 0).map(block => Integer.valueOf(block.partition) -> Integer.valueOf(0))
        assert(Facade.nearest(loaded).asScala == occupied.toMap)
        val found = blocks.flatMap(edgesOf(_, blocks)).toSeq.sorted
        assert(found == graph.edges.map { case (u, v, w) => (graph.id(u).toString, graph.id(v).toString, w) }.sorted)
      } finally loaded.close()
    }
  }

  private def checkPlaces(blocks: Array[Block], partitions: Int): Unit =
    for (block <- blocks; row <- 0 until block.count) {
      assert(block.ids.partition(row, Placement(partitions)) == block.partition)
      val _ = assert(block.ids.find(block.ids, row) == row, "ids are not sorted")
    }

  private def name(ids: Ids, row: Int): String = ids.show(row).stripPrefix("'").stripSuffix("'")

  private def edgesOf(block: Block, blocks: Array[Block]): Seq[(String, String, Float)] = {
    val halo = for (owner <- blocks.toSeq; row <- owner.send(block.partition).toSeq) yield name(owner.ids, row)
    val sources = (0 until block.count).map(name(block.ids, _)) ++ halo
    assert(sources.size == block.sources)
    val csr = block.graph.forward
    for (row <- 0 until csr.rows; edge <- csr.indptr(row) until csr.indptr(row + 1))
      yield (sources(csr.columns(edge)), name(block.ids, row), csr.weights.get(edge))
  }

  test("integer ids of any size, features of doubles, no weights") {
    val vertices = Seq((1, Seq(0.5, 1.5)), (2, Seq(2.5, 3.5))).toDF("id", "features")
    val loaded = Load(2, Seq("features"), None)(vertices, Seq((1, 2), (1, 2)).toDF("src", "dst"))
    try {
      assert(loaded.blocks.map(_.graph.forward.edges).sum() == 2.0)
      assert(loaded.blocks.map(_.graph.forward.weights.isEmpty).collect().forall(identity))
      assert(loaded.columns("features").flatMap(_.values).collect().sorted.toSeq == Seq(0.5f, 1.5f, 2.5f, 3.5f))
    } finally loaded.close()
  }

  test("a graph without edges") {
    val loaded = Load(3, Nil, None)(Seq(1L, 2L).toDF("id"), Seq.empty[(Long, Long)].toDF("src", "dst"))
    try assert(loaded.blocks.map(_.count).sum() == 2.0)
    finally loaded.close()
  }

  private val bad = Seq(
    ("an unknown source", Seq(1L, 2L), Seq((3L, 1L)), "an edge names the vertex 3"),
    ("an unknown destination", Seq(1L, 2L), Seq((1L, 3L)), "an edge names the vertex 3"),
    ("a doubled id", Seq(1L, 2L, 1L), Seq((1L, 2L)), "two vertices have the id 1")
  )
  for ((what, ids, edges, message) <- bad)
    test(s"$what is refused, and nothing stays cached") {
      val failure = intercept[SparkException](Load(2, Nil, None)(ids.toDF("id"), edges.toDF("src", "dst")))
      assert(
        Iterator.iterate[Throwable](failure)(_.getCause).takeWhile(_ != null).exists(_.getMessage.contains(message))
      )
      assert(spark.sparkContext.getPersistentRDDs.isEmpty)
    }
}
