package lotan

import scala.reflect.ClassTag

import org.apache.spark.rdd.RDD
import org.scalatest.funsuite.AnyFunSuite

class CollectSuite extends AnyFunSuite with LocalSpark {
  import CollectSuite._

  for (partitions <- Seq(1, 3, 7); set <- Seq(EdgeSet.Graph, EdgeSet.SelfLoops); chunkRows <- Seq(5, 4096))
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
        val backward = Gather(6)(blocks, contributions(blocks, near, column))
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

  for (partitions <- Seq(1, 3); chunkRows <- Seq(2, 4096))
    test(s"chunks within a level, and their adjoint: $partitions partitions, $chunkRows rows per chunk") {
      val graph = RandomGraph(partitions, 70, 40, text = partitions == 3)
      val targets = Set(7, 69)
      val split = Array.tabulate(graph.count)(v => Array(if (targets(v)) 0f else -1f))
      val x = RandomGraph.column(1, graph.count, 6)
      val loaded = LevelOrder(1)(graph.load(spark, partitions, Map("x" -> x, "split" -> split)))
      try
        for (level <- Seq(0, 1); set <- Seq(EdgeSet.Graph, EdgeSet.SelfLoops)) {
          val blocks = loaded.blocks
          val inside = graph.levels(targets, 3).map(_ <= level)
          def kept[T: ClassTag](rows: Array[Array[T]], zero: T) =
            rows.zip(inside).map { case (row, in) => if (in) row else row.map(_ => zero) }
          val near = Collect(set, chunkRows, within = level)(blocks)
          val forward = sums(blocks, loaded.columns("x"), near)
          val padded = blocks.zipPartitions(forward) { (ofBlock, ofRows) =>
            val (block, rows) = (ofBlock.next(), ofRows.next())
            Iterator.single(new Rows(6, rows.values.padTo(block.count * 6, 0f)))
          }
          val all = graph.propagate(x, set, weighted = true, reverse = false)
          assert(forward.map(_.count).collect().toSeq == blocks.map(_.rows(level)).collect().toSeq)
          assert(RandomGraph.close(graph.read(blocks, padded), kept(all, 0.0)))
          val contributed = contributions(blocks, near, RandomGraph.cut(blocks, loaded.columns("x"), level))
          val expected = graph.propagate(kept(x, 0f), set, weighted = true, reverse = true)
          assert(RandomGraph.close(graph.read(blocks, Gather(6)(blocks, contributed)), expected))
          val rows = Gather(6, level + 1)(blocks, contributed)
          assert(rows.map(_.count).collect().toSeq == blocks.map(_.rows(level + 1)).collect().toSeq)
        }
      finally loaded.close()
    }

  test("contributions are added in the order of the chunks, in whichever they come back") {
    val graph = RandomGraph(4, 50, 300)
    val loaded = graph.load(spark, 2, Map("x" -> RandomGraph.column(1, graph.count, 2)))
    try {
      val near = Collect(EdgeSet.Graph, 3)(loaded.blocks)
      val returned = returnedRows(near, loaded.columns("x")).collect()
      for ((block, place) <- loaded.blocks.collect().zipWithIndex) {
        val chunks = near.collect()(place)
        val orders = chunks.indices +: Seq.fill(5)(new scala.util.Random(place).shuffle(chunks.indices.toList))
        val found = orders.map { order =>
          val sums = new ContributionSums(block.partition, block.count, block.partitions, chunks, 2)
          order.foreach(chunk => sums.take(chunk, returned(place)(chunk)))
          sums.byOwner.toSeq.map(rows => Option(rows).map(_.values.toSeq))
        }
        assert(found.distinct.length == 1)
      }
    } finally loaded.close()
  }

  test("contributions that do not fit the chunks are refused") {
    val graph = RandomGraph(4, 50, 100)
    val loaded = graph.load(spark, 1, Map("x" -> RandomGraph.column(1, graph.count, 2)))
    try {
      val near = Collect(EdgeSet.Graph, 7)(loaded.blocks).first()
      def sums = new ContributionSums(0, graph.count, 1, near, 2)
      val missing = intercept[Exception](sums.byOwner)
      assert(missing.getMessage.contains(s"contributions of 0 chunks of ${near.length} in partition 0"))
      val longer = intercept[Exception](sums.take(0, Rows.zeros(near(0).sources.length + 1, 2)))
      assert(longer.getMessage.contains("contributions of"))
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
  def returnedRows(near: RDD[Array[Neighbourhood]], gradient: RDD[Rows]): RDD[Array[Rows]] =
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

  /** The sums of what workers return, as a pipe makes them. */
  def contributions(blocks: RDD[Block], near: RDD[Array[Neighbourhood]], gradient: RDD[Rows]): RDD[Array[Rows]] =
    blocks.zipPartitions(near, returnedRows(near, gradient)) { (ofBlock, ofNear, ofChunks) =>
      val (block, chunks) = (ofBlock.next(), ofNear.next())
      val sums = new ContributionSums(block.partition, block.count, block.partitions, chunks, 6)
      for ((rows, chunk) <- ofChunks.next().zipWithIndex) sums.take(chunk, rows)
      Iterator.single(sums.byOwner)
    }
}
