package lotan

import scala.jdk.CollectionConverters._

import org.apache.spark.rdd.RDD
import org.apache.spark.unsafe.types.UTF8String
import org.scalatest.funsuite.AnyFunSuite

/** Blocks in the order of levels, and sums over the edges that end within one. */
class LevelOrderSuite extends AnyFunSuite with LocalSpark {
  import RandomGraph.cut

  private val Width = 5
  private val Deepest = 2
  private val Path = Seq(7, 20, 21, 22, 23, 24) // every vertex has an edge to the one before
  private val sets =
    for (set <- Seq(EdgeSet.Graph, EdgeSet.SelfLoops); weighted <- Seq(false, true)) yield (set, weighted)
  private val bothSets = Seq((EdgeSet.Graph, true), (EdgeSet.SelfLoops, false)) // for levels, which leave weights alone

  /** A graph, rows for its vertices, their levels, and blocks in the order of these.
    *
    * Some graphs' targets are their training vertices, others' are those of any split.
    */
  private def each(check: (RandomGraph, Array[Array[Float]], Array[Int], LoadedGraph) => Any): Unit =
    for {
      (partitions, text, hubEdges) <- Seq((1, false, 1024), (2, true, 1024), (3, false, 5))
      allSplits = partitions % 3 == 1
    } {
      val plain = RandomGraph(20 + partitions, 60, 40, text)
      val graph = plain.copy(edges = plain.edges ++ Path.zip(Path.tail).map { case (dst, src) => (src, dst, 0.5f) })
      val targets = Set(7, 11, 55) // the last one is isolated
      val codes =
        if (allSplits) (Seq(1f, 0f, 2f), Seq(-1f)) else (Seq(0f), Seq(-1f, 1f, 2f)) // of targets, and of others
      val split = Array.tabulate(graph.count) { v =>
        val of = if (targets(v)) codes._1 else codes._2
        Array(of(v % of.length))
      }
      val x = RandomGraph.column(partitions, graph.count, Width)
      val unordered = graph.load(spark, partitions, Map("x" -> x, "split" -> split), hubEdges)
      val loaded = LevelOrder(Deepest, allSplits)(unordered)
      try { val _ = check(graph, x, graph.levels(targets, Deepest + 2), loaded) }
      finally loaded.close()
    }

  /** The rows that there are, by vertex. */
  private def read(graph: RandomGraph, blocks: RDD[Block], column: RDD[Rows]): Map[Int, Seq[Float]] = {
    val vertexOf = (0 until graph.count).map(v => graph.id(v).toString -> v).toMap
    blocks
      .zip(column)
      .collect()
      .flatMap { case (block, rows) =>
        (0 until rows.count).map { row =>
          val id = block.ids match {
            case ids: LongIds => ids.values(row).toString
            case ids: TextIds => ids.values(row).toString
          }
          vertexOf(id) -> rows.values.slice(row * rows.width, (row + 1) * rows.width).toSeq
        }
      }
      .toMap
  }

  private def within(levels: Array[Int], level: Int): Set[Int] =
    levels.indices.filter(v => level == Block.All || levels(v) <= level).toSet

  private def check(found: Map[Int, Seq[Float]], expected: Array[Array[Double]], vertices: Set[Int], what: String) = {
    assert(found.keySet == vertices, what)
    val sorted = vertices.toArray.sorted
    assert(RandomGraph.close(sorted.map(found(_).toArray), sorted.map(expected(_))), what)
  }

  private def bits(column: RDD[Rows]): Seq[Seq[Int]] =
    column.collect().toSeq.map(_.values.toSeq.map(java.lang.Float.floatToRawIntBits))

  test("vertices come by level, with their rows, and nothing is lost") {
    each { (graph, x, levels, loaded) =>
      assert(levels.distinct.length >= 4)
      for (level <- 0 to Deepest + 1) {
        val found = read(graph, loaded.blocks, cut(loaded.blocks, loaded.columns("x"), level))
        assert(found == within(levels, level).map(v => v -> x(v).toSeq).toMap)
      }
      assert(read(graph, loaded.blocks, loaded.columns("x")) == x.indices.map(v => v -> x(v).toSeq).toMap)
    }
  }

  test("the lowest level of a partition is that of its nearest vertex") {
    each { (graph, _, levels, loaded) =>
      val placement = Placement(loaded.blocks.getNumPartitions)
      def of(vertex: Int): Int = graph.id(vertex) match {
        case id: Long => placement.of(id)
        case id => placement.of(UTF8String.fromString(id.toString))
      }
      val expected = levels.indices.groupMapReduce(of)(levels(_))(math.min)
      val found = Facade.nearest(loaded).asScala.map { case (partition, level) => partition.toInt -> level.toInt }
      assert(found == expected)
    }
  }

  test("sums over all edges are what they were, hubs or not, by either way") {
    each { (graph, x, _, loaded) =>
      for ((set, weighted) <- sets; reverse <- Seq(false, true)) {
        val step = Propagate(set, weighted, reverse)
        val forms = Seq(false, true).map(step(loaded.blocks, loaded.columns("x"), _, loaded.hubs))
        check(
          read(graph, loaded.blocks, forms.head),
          graph.propagate(x, set, weighted, reverse),
          x.indices.toSet,
          s"$step"
        )
        assert(bits(forms.head) == bits(forms.last), step.toString)
      }
    }
  }

  test("forward within a level reads rows up to the next and has sums for that level's vertices") {
    each { (graph, x, levels, loaded) =>
      for ((set, weighted) <- bothSets; level <- 0 to Deepest) {
        val step = Propagate(set, weighted, reverse = false, within = level)
        val column = cut(loaded.blocks, loaded.columns("x"), level + 1).persist()
        try {
          val forms = Seq(false, true).map(step(loaded.blocks, column, _))
          val expected = graph.propagate(x, set, weighted, reverse = false)
          check(read(graph, loaded.blocks, forms.head), expected, within(levels, level), step.toString)
          assert(bits(forms.head) == bits(forms.last), step.toString)
          assert(InTurnSuite.bits(InTurn(step, hubs = false), loaded.blocks, column) == bits(forms.last), step.toString)
        } finally { val _ = column.unpersist(blocking = true) }
      }
    }
  }

  test("reverse within a level has zeros for vertices that are farther off than the next") {
    each { (graph, x, levels, loaded) =>
      for ((set, weighted) <- bothSets; level <- 0 to Deepest; made <- Seq(level + 1, Block.All)) {
        val step = Propagate(set, weighted, reverse = true, within = level, made = made)
        val column = cut(loaded.blocks, loaded.columns("x"), level).persist()
        try {
          val forms = Seq(false, true).map(step(loaded.blocks, column, _))
          val zero = new Array[Float](Width)
          val kept = x.indices.map(v => if (levels(v) <= level) x(v) else zero).toArray
          val expected = graph.propagate(kept, set, weighted, reverse = true)
          check(read(graph, loaded.blocks, forms.head), expected, within(levels, made), step.toString)
          assert(
            forms.head.collect().map(_.values.toSeq).toSeq == forms.last.collect().map(_.values.toSeq).toSeq,
            step.toString
          )
          val pieces = inPieces(step.asRead(loaded.blocks, column))
          assert(pieces == forms.last.collect().map(_.values.toSeq).toSeq, step.toString)
          assert(InTurnSuite.bits(InTurn(step, hubs = false), loaded.blocks, column) == bits(forms.last), step.toString)
        } finally { val _ = column.unpersist(blocking = true) }
      }
    }
  }

  private def inPieces(sums: RDD[RowReader]): Seq[Seq[Float]] = sums
    .map { rows =>
      val pieces = for (from <- (0 until rows.count by 4).reverse) yield {
        val until = math.min(from + 4, rows.count)
        val into = Array.fill(4 * rows.width)(Float.NaN) // whatever was there
        rows.read(from, until, into)
        into.take((until - from) * rows.width).toSeq
      }
      pieces.reverse.flatten
    }
    .collect()
    .toSeq

  test("a column that has too few rows for a level is refused") {
    each { (_, _, _, loaded) =>
      val short = cut(loaded.blocks, loaded.columns("x"), 0).persist()
      try
        for (shared <- Seq(false, true)) {
          val sums =
            Propagate(EdgeSet.Graph, weighted = false, reverse = false, within = 1)(loaded.blocks, short, shared)
          assert(intercept[Exception](sums.count()).getMessage.contains("rows in a partition of"))
        }
      finally { val _ = short.unpersist(blocking = true) }
    }
  }
}
