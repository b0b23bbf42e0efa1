package lotan

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.SparkSession
import org.apache.spark.unsafe.types.UTF8String

/** A random graph on blocks, with the edges of one set that end within a level in the order of edge columns, to compare with
  * definitions.
  *
  * Outputs have rows for all vertices, or edges, and columns of vertices none that no step needs.
  *
  * @param edges
  *   by partition: source, destination, weight
  */
final class EdgeSamples(
    spark: SparkSession,
    val graph: RandomGraph,
    loaded: LoadedGraph,
    val set: EdgeSet,
    val within: Int
) {
  type Edge = (Int, Int, Float)

  val blocks: RDD[Block] = loaded.blocks

  val scope: EdgeScope = EdgeScope(set, within)

  /** The rows of all vertices. */
  def column(name: String): RDD[Rows] = loaded.columns(name)

  /** Those that the edges end at. */
  def destinations(name: String): RDD[Rows] = RandomGraph.cut(blocks, column(name), within)

  /** Those that the edges begin at. */
  def sources(name: String, shared: Boolean): RDD[SourceRows] = {
    val near = RandomGraph.cut(blocks, column(name), Block.farther(within))
    SourceRows(blocks, near, shared, within)
  }

  val edges: Seq[Seq[Edge]] = {
    val all = blocks.collect().toSeq
    val vertexOf = (0 until graph.count).map(v => graph.id(v).toString -> v).toMap
    def vertex(block: Block, row: Int): Int = vertexOf(block.ids match {
      case ids: LongIds => ids.values(row).toString
      case ids: TextIds => ids.values(row).asInstanceOf[UTF8String].toString
    })
    all.map { block =>
      val own = (0 until block.count).map(vertex(block, _))
      val halo = all.flatMap(owner => owner.send(block.partition).toSeq.map(vertex(owner, _)))
      val order = scope.order(block)
      (0 until order.edges).map { edge =>
        val weight = order.matrix.weights.fold(1f)(_(edge))
        ((own ++ halo)(order.matrix.columns(edge)), own(order.destinations(edge)), weight)
      }
    }
  }

  /** By partition, how many edges end farther off. */
  private val others: Seq[Int] = blocks.collect().toSeq.zip(edges).map { case (block, part) =>
    block.edges(set).order.edges - part.size
  }

  /** An edge column, with rows that are no numbers for the edges that end farther off. */
  def edgeColumn(width: Int)(value: Edge => Array[Float]): RDD[Rows] = {
    val rows = edges.zip(others).map { case (part, more) =>
      new Rows(width, part.flatMap(value(_)).toArray ++ Array.fill(more * width)(Float.NaN))
    }
    spark.sparkContext.parallelize(rows, rows.size)
  }

  /** The rows of an edge column, each with its edge; those beyond are zeros. */
  def read(column: RDD[Rows]): Seq[(Edge, Array[Float])] =
    edges.zip(others).zip(column.collect()).flatMap { case ((part, more), rows) =>
      assert(rows.count == part.size + more)
      assert(rows.values.drop(part.size * rows.width).forall(_ == 0))
      part.zipWithIndex.map { case (edge, i) => edge -> rows.values.slice(i * rows.width, (i + 1) * rows.width) }
    }
}

object EdgeSamples {
  val Width = 12 // of the columns x and y
  val Heads = 3
  val Channels: Int = Width / Heads

  /** Numbers that differ from edge to edge, and are small whole ones for sums without rounding. */
  def numbers(edge: (Int, Int, Float), width: Int): Array[Float] =
    Array.tabulate(width)(h => ((edge._1 * 31 + edge._2 * 17 + (edge._3 * 1000).toInt * 7 + h * 5) % 13 - 6).toFloat)

  private val Targets = Set(7, 11, 39) // the last one is isolated
  private val Deepest = 1
  private val Beyond = Deepest + 2

  /** Runs `check` for both edge sets, with partitions from one to more than there are cores: for all edges, and for those that
    * end within a level, with hubs and with partitions that have no vertex within it.
    */
  def each(spark: SparkSession)(check: EdgeSamples => Any): Unit =
    for ((partitions, text, within) <- Seq((1, false, Block.All), (5, true, Block.All), (3, true, 1), (2, false, 0))) {
      val graph = RandomGraph(partitions, 40, 90, text)
      def whole(seed: Int) =
        RandomGraph.column(seed, graph.count, Width).map(_.map(v => math.round(v * 4).toFloat))
      val columns =
        Map("x" -> whole(1), "y" -> whole(2), "a" -> whole(3).map(_.take(Heads)), "b" -> whole(4).map(_.take(Heads)))
      val split = Array.tabulate(graph.count)(v => Array(if (Targets(v)) 0f else -1f))
      val unordered = graph.load(spark, partitions, columns + ("split" -> split), hubEdges = 5)
      val loaded = if (within == Block.All) unordered else LevelOrder(Deepest)(unordered)
      val levels = graph.levels(Targets, Beyond)
      try
        for (set <- Seq(EdgeSet.Graph, EdgeSet.SelfLoops)) {
          val samples = new EdgeSamples(spark, graph, loaded, set, within)
          val ending = graph.edgesOf(set).filter(edge => within == Block.All || levels(edge._2) <= within)
          assert(samples.edges.flatten.sorted == ending.sorted)
          val _ = check(samples)
        }
      finally loaded.close()
    }

  def inner(a: Iterable[Array[Float]], b: Iterable[Array[Float]]): Double =
    a.zip(b).map { case (p, q) => p.zip(q).map { case (u, v) => u.toDouble * v }.sum }.sum
}
