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
        val near = Collect(set, chunkRows)(blocks)
        val forward = sums(blocks, column, near)
        assert(
          RandomGraph.close(graph.read(blocks, forward), graph.propagate(x, set, weighted = true, reverse = false))
        )
        val backward = Gather(6)(blocks, near, contributions(near, column))
        assert(
          RandomGraph.close(graph.read(blocks, backward), graph.propagate(x, set, weighted = true, reverse = true))
        )
      } finally loaded.close()
    }

  test("a chunk has each of its sources once, and none that it does not need") {
    val graph = RandomGraph(4, 50, 200)
    val loaded = graph.load(spark, 3, Map("x" -> RandomGraph.column(1, graph.count, 1)))
    try
      Collect(EdgeSet.SelfLoops, 7)(loaded.blocks).collect().flatten.foreach { near =>
        assert(near.sources.toSeq == near.sources.toSeq.distinct.sorted)
        assert(near.matrix.columns.toSet == near.sources.indices.toSet)
        assert(near.matrix.rows <= 7)
      }
    finally loaded.close()
  }

  test("contributions that do not fit the chunks are refused") {
    val graph = RandomGraph(4, 50, 100)
    val loaded = graph.load(spark, 2, Map("x" -> RandomGraph.column(1, graph.count, 2)))
    try {
      val near = Collect(EdgeSet.Graph, 7)(loaded.blocks)
      val good = contributions(near, loaded.columns("x"))
      val wrong = Seq(
        "contributions for" -> good.map(_.dropRight(1)),
        "contributions for" -> good.map(_ :+ Rows.zeros(1, 2)),
        "contributions of" -> good.map(_.map(rows => Rows.zeros(rows.count + 1, 2)))
      )
      for ((message, contributed) <- wrong) {
        val failure = intercept[Exception](Gather(2)(loaded.blocks, near, contributed).count())
        assert(failure.getMessage.contains(message))
      }
    } finally loaded.close()
  }
}

object CollectSuite {

  /** What workers would do with the chunks: the weighted sum over in-edges. */
  def sums(blocks: RDD[Block], column: RDD[Rows], near: RDD[Array[Neighbourhood]]): RDD[Rows] =
    blocks.zipPartitions(column, Exchange.halo(blocks, column), near) { (ofBlock, ofColumn, ofHalo, ofNear) =>
      val (block, own) = (ofBlock.next(), ofColumn.next())
      val product = new SparseProduct(own.values +: ofHalo.next(), 0 +: block.haloStart, own.width)
      val out = ofNear.next().flatMap { chunk =>
        val all = chunk.matrix
        val far = new Csr(all.indptr, all.columns.map(chunk.sources), all.weights) // as rows of the block's sources
        val rows = new Array[Float](all.rows * own.width)
        product.addTo(rows, far, weighted = true, 0, all.rows)
        rows
      }
      Iterator.single(new Rows(own.width, out))
    }

  /** A worker's backward of these sums: for each source, the weighted sum of its out-edges' gradients. */
  def contributions(near: RDD[Array[Neighbourhood]], gradient: RDD[Rows]): RDD[Array[Rows]] =
    near.zipPartitions(gradient) { (ofNear, ofGradient) =>
      val all = ofGradient.next()
      Iterator.single(ofNear.next().map { chunk =>
        val out = Rows.zeros(chunk.sources.length, all.width)
        val rows = all.values.slice(chunk.firstRow * all.width, (chunk.firstRow + chunk.matrix.rows) * all.width)
        new SparseProduct(Array(rows), Array(0, chunk.matrix.rows), all.width)
          .addTo(out.values, chunk.matrix.transpose(chunk.sources.length), weighted = true, 0, chunk.sources.length)
        out
      })
    }
}
