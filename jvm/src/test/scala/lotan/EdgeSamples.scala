package lotan

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.SparkSession
import org.apache.spark.unsafe.types.UTF8String

/** A random graph on blocks, with the edges of one set in the order of edge columns, to compare with definitions.
  *
  * @param edges
  *   by partition: source, destination, weight
  */
final class EdgeSamples(spark: SparkSession, val graph: RandomGraph, loaded: LoadedGraph, val set: EdgeSet) {
  type Edge = (Int, Int, Float)

  val blocks: RDD[Block] = loaded.blocks

  def column(name: String): RDD[Rows] = loaded.columns(name)

  def sources(name: String, shared: Boolean): RDD[SourceRows] = SourceRows(blocks, column(name), shared)

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
      val order = block.edges(set).order
      (0 until order.edges).map { edge =>
        val weight = order.matrix.weights.fold(1f)(_(edge))
        ((own ++ halo)(order.matrix.columns(edge)), own(order.destinations(edge)), weight)
      }
    }
  }

  /** An edge column. */
  def edgeColumn(width: Int)(value: Edge => Array[Float]): RDD[Rows] =
    spark.sparkContext.parallelize(edges.map(part => new Rows(width, part.flatMap(value(_)).toArray)), edges.size)

  /** The rows of an edge column, each with its edge. */
  def read(column: RDD[Rows]): Seq[(Edge, Array[Float])] =
    edges.zip(column.collect()).flatMap { case (part, rows) =>
      assert(rows.count == part.size)
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

  /** Runs `check` for both edge sets, with partitions from one to more than there are cores. */
  def each(spark: SparkSession)(check: EdgeSamples => Any): Unit =
    for ((partitions, text) <- Seq((1, false), (5, true))) {
      val graph = RandomGraph(partitions, 40, 90, text)
      def whole(seed: Int) =
        RandomGraph.column(seed, graph.count, Width).map(_.map(v => math.round(v * 4).toFloat))
      val columns =
        Map("x" -> whole(1), "y" -> whole(2), "a" -> whole(3).map(_.take(Heads)), "b" -> whole(4).map(_.take(Heads)))
      val loaded = graph.load(spark, partitions, columns)
      try
        for (set <- Seq(EdgeSet.Graph, EdgeSet.SelfLoops)) {
          val samples = new EdgeSamples(spark, graph, loaded, set)
          assert(samples.edges.flatten.sorted == graph.edgesOf(set).sorted)
          val _ = check(samples)
        }
      finally loaded.close()
    }

  def inner(a: Iterable[Array[Float]], b: Iterable[Array[Float]]): Double =
    a.zip(b).map { case (p, q) => p.zip(q).map { case (u, v) => u.toDouble * v }.sum }.sum
}
