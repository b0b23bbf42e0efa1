package lotan

import org.apache.spark.rdd.RDD
import org.scalatest.funsuite.AnyFunSuite

class CollectSuite extends AnyFunSuite with LocalSpark {
  import CollectSuite._

  for (partitions <- Seq(1, 2, 3, 7); set <- Seq(EdgeSet.Graph, EdgeSet.SelfLoops); chunkRows <- Seq(5, 4096))
    test(s"chunks and their adjoint: $partitions partitions, edge set ${set.name}, $chunkRows rows per chunk") {
      val graph = RandomGraph(partitions, 70, 180, text = partitions == 2)
      val x = RandomGraph.column(1, graph.count, 6)
      val loaded = graph.load(spark, partitions, Map("x" -> x))
      try {
        val (blocks, column) = (loaded.blocks, loaded.columns("x"))
        val collect = Collect(set, chunkRows)
        val forward = collect(blocks, column).map(sums).mapPartitions(stack(_, 6))
        assert(
          RandomGraph.close(graph.read(blocks, forward), graph.propagate(x, set, weighted = true, reverse = false))
        )
        val backward = Gather(collect, 6)(blocks, contributions(blocks, column, collect))
        assert(
          RandomGraph.close(graph.read(blocks, backward), graph.propagate(x, set, weighted = true, reverse = true))
        )
      } finally loaded.close()
    }

  test("a chunk has each of its sources once, and none that it does not need") {
    val graph = RandomGraph(4, 50, 200)
    val loaded = graph.load(spark, 3, Map("x" -> RandomGraph.column(1, graph.count, 1)))
    try
      Collect(EdgeSet.SelfLoops, 7)(loaded.blocks, loaded.columns("x")).collect().foreach { chunk =>
        val sources = chunk.neighbourhood.sources
        assert(sources.toSeq == sources.toSeq.distinct.sorted)
        assert(chunk.neighbourhood.matrix.columns.toSet == sources.indices.toSet)
        assert(chunk.neighbourhood.matrix.rows <= 7)
      }
    finally loaded.close()
  }

  test("contributions that do not fit the chunks are refused") {
    val graph = RandomGraph(4, 50, 100)
    val loaded = graph.load(spark, 2, Map("x" -> RandomGraph.column(1, graph.count, 2)))
    try {
      val collect = Collect(EdgeSet.Graph, 7)
      val good = contributions(loaded.blocks, loaded.columns("x"), collect)
      val wrong = Seq(
        "fewer contributions" -> good.mapPartitions(_.toSeq.dropRight(1).iterator),
        "more contributions" -> good.mapPartitions(rows => rows ++ Iterator.single(Rows.zeros(1, 2))),
        "contributions of" -> good.map(rows => Rows.zeros(rows.count + 1, 2))
      )
      for ((message, contributed) <- wrong) {
        val failure = intercept[Exception](Gather(collect, 2)(loaded.blocks, contributed).count())
        assert(failure.getMessage.contains(message))
      }
    } finally loaded.close()
  }
}

object CollectSuite {

  /** What a worker would do with a chunk: the weighted sum over in-edges. */
  def sums(chunk: Collected): Rows = {
    val matrix = chunk.neighbourhood.matrix
    val out = Rows.zeros(matrix.rows, chunk.rows.width)
    new SparseProduct(Array(chunk.rows.values), Array(0, chunk.rows.count), chunk.rows.width)
      .addTo(out.values, matrix, weighted = true, 0, matrix.rows)
    out
  }

  def stack(chunks: Iterator[Rows], width: Int): Iterator[Rows] =
    Iterator.single(new Rows(width, chunks.toArray.flatMap(_.values)))

  /** A worker's backward of these sums: for each source, the weighted sum of its out-edges' gradients. */
  def contributions(blocks: RDD[Block], gradient: RDD[Rows], collect: Collect): RDD[Rows] =
    blocks.zipPartitions(gradient) { (ofBlock, ofGradient) =>
      val all = ofGradient.next()
      collect.neighbourhoods(ofBlock.next()).map { near =>
        val out = Rows.zeros(near.sources.length, all.width)
        val rows = all.values.slice(near.firstRow * all.width, (near.firstRow + near.matrix.rows) * all.width)
        new SparseProduct(Array(rows), Array(0, near.matrix.rows), all.width)
          .addTo(out.values, near.matrix.transpose(near.sources.length), weighted = true, 0, near.sources.length)
        out
      }
    }
}
